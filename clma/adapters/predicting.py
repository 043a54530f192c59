"""Published weights in the model of their federation, as something that predicts.

Frameworks are imported only where the federation's adapter names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clma.config import ModelAdapter
from clma.errors import InvalidConfigError

__all__ = ["Predictor", "make_predictor"]

Predictor = Callable[[ArrayLike], NDArray[np.float32]]
"""Outputs of shape (batch, n_outputs) for a batch of samples."""


def make_predictor(
    model: Any, parameters: Mapping[str, NDArray[Any]], *, adapter: ModelAdapter
) -> Predictor:
    """Fill a model with weights and return what predicts with it.

    Parameters
    ----------
    model : torch.nn.Module, keras.Model or scikit-learn estimator
        As the federation's factory made it; filled in place.
    parameters : mapping of name to ndarray
        As the adapter names them.
    adapter : {"torch", "keras", "sklearn"}
        `FederationConfig.model_adapter`.

    Returns
    -------
    callable
        A classifier's class probabilities, in rows that sum to 1: the softmax of a torch network's
        outputs, what a Keras model returns as it is, ``predict_proba`` of an estimator, with the
        classes in its order. Anything else's outputs as they are.

    Raises
    ------
    InvalidConfigError
        If the model is not of that framework, or an estimator is a classifier without
        probabilities.
    ShapeMismatchError
        If names or shapes are not the model's.
    MissingExtraError
        If the framework is not installed.
    """
    make = {"torch": _of_torch, "keras": _of_keras, "sklearn": _of_sklearn}[adapter]
    return make(model, parameters)


def _of_torch(model: Any, parameters: Mapping[str, NDArray[Any]]) -> Predictor:
    from clma.adapters.torch import load_parameters

    import torch  # isort: skip  # the adapter says in one line where it is missing

    _check(model, torch.nn.Module, "a torch.nn.Module", "torch")
    load_parameters(model, parameters)
    model.eval()

    def predict(samples: ArrayLike) -> NDArray[np.float32]:
        batch = torch.from_numpy(np.array(samples, dtype=np.float32, order="C"))
        with torch.inference_mode():
            outputs = model(batch).to(torch.float32)
            if outputs.ndim > 1 and outputs.shape[-1] > 1:
                outputs = outputs.softmax(dim=-1)
        result: NDArray[np.float32] = outputs.cpu().numpy()
        return result

    return predict


def _of_keras(model: Any, parameters: Mapping[str, NDArray[Any]]) -> Predictor:
    from clma.adapters.keras import load_parameters

    import keras  # isort: skip

    _check(model, keras.Model, "a keras.Model", "keras")
    load_parameters(model, parameters)

    def predict(samples: ArrayLike) -> NDArray[np.float32]:
        outputs = model.predict(np.asarray(samples, dtype=np.float32), verbose=0)
        return np.asarray(outputs, dtype=np.float32)

    return predict


def _of_sklearn(model: Any, parameters: Mapping[str, NDArray[Any]]) -> Predictor:
    from clma.adapters.sklearn import load_parameters

    from sklearn.base import BaseEstimator, is_classifier  # isort: skip

    _check(model, BaseEstimator, "a prepared scikit-learn estimator", "sklearn")
    load_parameters(model, parameters)
    if is_classifier(model) and not hasattr(model, "predict_proba"):
        raise InvalidConfigError(
            f"{type(model).__name__} gives no probabilities, wanted loss='log_loss' or an "
            "estimator with predict_proba"
        )
    outputs_of = model.predict_proba if is_classifier(model) else model.predict

    def predict(samples: ArrayLike) -> NDArray[np.float32]:
        batch = np.asarray(samples, dtype=np.float64)
        return np.asarray(outputs_of(batch), dtype=np.float32).reshape(len(batch), -1)

    return predict


def _check(model: Any, kind: type, wanted: str, adapter: str) -> None:
    if not isinstance(model, kind):
        raise InvalidConfigError(
            f"model_adapter = {adapter!r}, but the model factory makes a {type(model).__name__}, "
            f"wanted {wanted}"
        )
