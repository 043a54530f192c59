"""What answers ``mlflow.pyfunc.load_model("models:/<federation>.<cohort>@champion")``.

MLflow stores this file beside the weights and runs it to load a version ("models from code"), so
nothing is ever unpickled: the weights are safetensors, the rest is JSON, and the network comes from
the factory that the operator named in ``federation.toml``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from numpy.typing import NDArray

from clma.adapters.factory import load_factory
from clma.adapters.predicting import Predictor, make_predictor
from clma.errors import DamagedStoreError, InvalidConfigError
from clma.parameters.tensor_file import TensorFile

__all__ = ["CohortModel"]


class CohortModel(PythonModel):
    """One version of a cohort's model: published weights in the network of its federation."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the weights and build the network, if the federation has one.

        Parameters
        ----------
        context : PythonModelContext
            With the artifacts ``weights`` (safetensors) and ``serving`` (JSON).

        Raises
        ------
        DamagedStoreError
            If the weights are not those that were published.
        """
        self._facts = json.loads(Path(context.artifacts["serving"]).read_text(encoding="utf-8"))
        weights = Path(context.artifacts["weights"])
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        if digest != self._facts["model_digest"]:
            raise DamagedStoreError(
                f"{self._whose()}: weights have digest {digest}, "
                f"{self._facts['model_digest']} was published"
            )
        self._predict = self._build(weights) if self._facts["model_factory"] else None

    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Return class probabilities, or what else the model gives.

        Parameters
        ----------
        context : PythonModelContext
            Not used.
        model_input : array_like of shape (batch, ...)
            In the units that the clients train on.
        params : dict, optional
            Not used.

        Returns
        -------
        ndarray of shape (batch, n_outputs)
            A classifier's probabilities, in rows that sum to 1; other outputs as they are
            (`clma.adapters.predicting.make_predictor`).

        Raises
        ------
        InvalidConfigError
            If the federation names no model factory.
        """
        if self._predict is None:
            raise InvalidConfigError(
                f"{self._whose()} is weights only: make the federation with "
                "'clma init --set model_factory=package.module:factory' for models that predict"
            )
        return self._predict(model_input)

    def _build(self, weights: Path) -> Predictor:
        """Return what predicts with the weights in the federation's model."""
        facts = self._facts
        model = load_factory(facts["model_factory"])(**facts["model_arguments"])
        with TensorFile(weights) as file:
            parameters = {spec.name: file.read(spec.name) for spec in file.specs}
        return make_predictor(model, parameters, adapter=facts["model_adapter"])

    def _whose(self) -> str:
        """Name the model for a message."""
        facts = self._facts
        return f"model of cohort {facts['cohort_id']!r} of {facts['federation']!r}"


set_model(CohortModel())
