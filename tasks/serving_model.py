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
from numpy.typing import ArrayLike, NDArray

from clma.adapters.factory import load_factory
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
        self._module = self._build(weights) if self._facts["model_factory"] else None

    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Return class probabilities.

        Parameters
        ----------
        context : PythonModelContext
            Not used.
        model_input : array_like of shape (batch, ...)
            Read as float32, in the units that the clients train on.
        params : dict, optional
            Not used.

        Returns
        -------
        ndarray of shape (batch, n_classes)
            Softmax of the network's outputs, rows sum to 1; a network with a single output has
            nothing to normalise and its output is returned as it is.

        Raises
        ------
        InvalidConfigError
            If the federation names no model factory.
        """
        if self._module is None:
            raise InvalidConfigError(
                f"{self._whose()} is weights only: make the federation with "
                "'clma init --set model_factory=package.module:factory' for models that predict"
            )
        return _probabilities(self._module, model_input)

    def _build(self, weights: Path) -> Any:
        """Return the network with the weights in it, ready to predict."""
        import torch  # a federation without a factory needs none

        from clma.adapters.torch import load_parameters

        module = load_factory(self._facts["model_factory"])(**self._facts["model_arguments"])
        if not isinstance(module, torch.nn.Module):
            raise InvalidConfigError(
                f"model factory {self._facts['model_factory']!r} makes a "
                f"{type(module).__name__}, wanted a torch.nn.Module"
            )
        with TensorFile(weights) as file:
            load_parameters(module, {spec.name: file.read(spec.name) for spec in file.specs})
        return module.eval()

    def _whose(self) -> str:
        """Name the model for a message."""
        facts = self._facts
        return f"model of cohort {facts['cohort_id']!r} of {facts['federation']!r}"


def _probabilities(module: Any, model_input: ArrayLike) -> NDArray[np.float32]:
    """Run the network without gradients; softmax over the last axis."""
    import torch

    batch = torch.from_numpy(np.array(model_input, dtype=np.float32, order="C"))
    with torch.inference_mode():
        outputs = module(batch).to(torch.float32)
        if outputs.ndim > 1 and outputs.shape[-1] > 1:
            outputs = outputs.softmax(dim=-1)
    result: NDArray[np.float32] = outputs.cpu().numpy()
    return result


set_model(CohortModel())
