"""scikit-learn's linear models and multilayer perceptrons to named arrays and back.

An estimator has no weights before its first fit, and which shapes they get is its own affair. So a
new one is prepared once, with the number of features and the classes; then weights go in and out,
and ``partial_fit`` (or ``fit``, where the estimator has ``warm_start``) goes on from them.

Examples
--------
>>> from sklearn.linear_model import SGDClassifier
>>> model = prepare(SGDClassifier(loss="log_loss"), n_features=2, classes=[0, 1])
>>> load_parameters(model, {"linear.coef": np.array([[3.0, 0.0]]), "linear.intercept": np.ones(1)})
>>> model.predict([[1.0, 0.0], [-1.0, 0.0]])
array([1, 0])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from clma.errors import (
    InvalidConfigError,
    InvalidUpdateError,
    MissingExtraError,
    ShapeMismatchError,
)

try:
    from sklearn.base import BaseEstimator, is_classifier
except ImportError as error:  # pragma: no cover - the base install has no scikit-learn
    raise MissingExtraError(
        "clma.adapters.sklearn needs scikit-learn: pip install 'clma[sklearn]'"
    ) from error

__all__ = ["load_parameters", "losses_of", "parameters_of", "prepare"]


def prepare(
    estimator: BaseEstimator,
    *,
    n_features: int,
    classes: ArrayLike | None = None,
    n_outputs: int = 1,
    dtype: DTypeLike = np.float64,
) -> BaseEstimator:
    """Give a new estimator its weights, classes and shapes.

    Parameters
    ----------
    estimator : BaseEstimator
        Changed in place; what it learned before is lost where it has no ``partial_fit``.
    n_features : int, >= 1
    classes : array_like of shape (n_classes,), optional
        All classes of the federation, sorted, those too that this plant has never seen. Wanted for
        classifiers, and only for them.
    n_outputs : int, >= 1
        Targets of a regressor.
    dtype : float32 or float64
        Of the weights; feed the estimator arrays of this dtype.

    Returns
    -------
    BaseEstimator
        The same object.

    Raises
    ------
    InvalidConfigError
        If the estimator is none that travels, refuses the numbers, or keeps averaged weights beside
        the others (``average``): only one set can travel.

    Notes
    -----
    The estimator's own first call, on made-up samples that are all zero, makes what it needs, so
    that nothing here depends on how it keeps it. The counter of a learning rate schedule starts
    anew afterwards, and so do an optimizer's moments.
    """
    name = type(estimator).__name__
    if getattr(estimator, "average", False):
        raise InvalidConfigError(f"{name} has average={estimator.average}, wanted average=False")
    if is_classifier(estimator) != (classes is not None):
        wanted = "its classes" if classes is None else "none: it is no classifier"
        raise InvalidConfigError(f"{name}: classes is {classes!r}, wanted {wanted}")
    targets = np.zeros((1, n_outputs)) if classes is None else np.asarray(classes)
    if classes is None and n_outputs == 1:
        targets = targets.ravel()
    samples = np.zeros((len(targets), n_features), dtype)
    try:
        if not hasattr(estimator, "partial_fit"):
            estimator.fit(samples, targets)
        elif classes is None:
            estimator.partial_fit(samples, targets)
        else:
            estimator.partial_fit(samples, targets, classes=targets)
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(f"{name} refuses: {str(error).partition(chr(10))[0]}") from error
    _start_counting_anew(estimator)
    _tensors(estimator)
    return estimator


def parameters_of(estimator: BaseEstimator) -> dict[str, NDArray[Any]]:
    """Copy an estimator's weights into arrays.

    Parameters
    ----------
    estimator : BaseEstimator
        Fitted or prepared. Not modified.

    Returns
    -------
    dict of name to ndarray
        ``linear.coef`` and ``linear.intercept``, or ``layers.0.coef``, ``layers.0.intercept`` and
        so on from the first hidden layer to the output. In the estimator's shapes and dtypes.

    Raises
    ------
    InvalidConfigError
        If the estimator has no dense weights under `coef_` or `coefs_`.
    """
    return {name: np.array(values, order="C") for name, values in _tensors(estimator).items()}


def load_parameters(estimator: BaseEstimator, parameters: Mapping[str, NDArray[Any]]) -> None:
    """Fill an estimator with arrays; it keeps its dtypes and shapes.

    Nothing is written unless everything fits. An optimizer's moments stay, as in a torch optimizer.

    Parameters
    ----------
    estimator : BaseEstimator
        Fitted or prepared.
    parameters : mapping of name to ndarray
        Exactly the names and shapes of `parameters_of`. Not modified.

    Raises
    ------
    InvalidConfigError
        If the estimator has no dense weights under `coef_` or `coefs_`.
    ShapeMismatchError
        If a name is missing or unknown, or a shape differs; nothing is broadcast.
    InvalidUpdateError
        If an array does not hold real numbers.
    """
    own = _tensors(estimator)
    missing, unknown = sorted(own.keys() - parameters), sorted(parameters.keys() - own)
    if missing or unknown:
        raise ShapeMismatchError(f"parameters lack {missing} and have unknown {unknown}")
    arrays = {name: _fitting(name, parameters[name], values) for name, values in own.items()}
    if hasattr(estimator, "coefs_"):
        n_layers = len(estimator.coefs_)
        estimator.coefs_ = [arrays[f"layers.{i}.coef"] for i in range(n_layers)]
        estimator.intercepts_ = [arrays[f"layers.{i}.intercept"] for i in range(n_layers)]
        return
    estimator.coef_ = arrays["linear.coef"]
    intercept = arrays["linear.intercept"]
    estimator.intercept_ = intercept if intercept.ndim else intercept.item()


def losses_of(estimator: BaseEstimator, samples: ArrayLike, targets: ArrayLike) -> NDArray[Any]:
    """Measure a model on each sample, for `clma.client.DriftReporter`.

    Parameters
    ----------
    estimator : BaseEstimator
    samples : array_like of shape (n_samples, n_features)
    targets : array_like of shape (n_samples,) or (n_samples, n_outputs)
        In the units of the estimator.

    Returns
    -------
    ndarray of shape (n_samples,)
        A classifier's negative logarithm of the true class's probability, in nats, at most 745; a
        regressor's squared error, mean over the outputs.

    Raises
    ------
    InvalidConfigError
        If a classifier gives no probabilities.
    InvalidUpdateError
        If a target is none of the classes.
    """
    wanted = np.asarray(targets)
    if not is_classifier(estimator):
        errors = (np.asarray(estimator.predict(samples)) - wanted) ** 2
        return np.asarray(errors.reshape(len(errors), -1).mean(axis=1), np.float64)
    if not hasattr(estimator, "predict_proba"):
        raise InvalidConfigError(
            f"{type(estimator).__name__} gives no probabilities, wanted loss='log_loss' or an "
            "estimator with predict_proba"
        )
    classes = np.asarray(estimator.classes_)
    columns = np.searchsorted(classes, wanted)
    if not np.array_equal(classes[np.minimum(columns, len(classes) - 1)], wanted):
        raise InvalidUpdateError(f"a target is none of the classes {classes.tolist()}")
    chances = np.asarray(estimator.predict_proba(samples), np.float64)
    own = chances[np.arange(len(columns)), columns]
    # The smallest positive float: a certain error is very bad, not infinite.
    return np.asarray(-np.log(np.maximum(own, np.nextafter(0.0, 1.0))), np.float64)


def _tensors(estimator: BaseEstimator) -> dict[str, NDArray[Any]]:
    """Return an estimator's weights by name, not copied."""
    name = type(estimator).__name__
    if isinstance(getattr(type(estimator), "coef_", None), property):
        raise InvalidConfigError(f"{name} computes coef_ from what it fitted: it cannot be set")
    try:
        if hasattr(estimator, "coefs_"):
            pairs = zip(estimator.coefs_, estimator.intercepts_, strict=True)
            named = {f"layers.{i}": pair for i, pair in enumerate(pairs)}
        else:
            named = {"linear": (estimator.coef_, estimator.intercept_)}
    except AttributeError:
        raise InvalidConfigError(
            f"{name} has no weights under coef_ or coefs_: it was neither fitted nor prepared, or "
            "is neither a linear model nor a multilayer perceptron"
        ) from None
    tensors = {}
    for layer, (coef, intercept) in named.items():
        tensors[f"{layer}.coef"] = np.asarray(coef)
        tensors[f"{layer}.intercept"] = np.asarray(intercept, np.asarray(coef).dtype)
    if any(values.dtype.kind != "f" for values in tensors.values()):
        raise InvalidConfigError(f"{name} keeps its weights sparse, wanted dense ones (densify())")
    return tensors


def _fitting(name: str, values: ArrayLike, own: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != own.shape:
        raise ShapeMismatchError(
            f"parameter {name!r} has shape {list(array.shape)}, "
            f"the estimator wants {list(own.shape)}"
        )
    if array.dtype.kind not in "biuf":
        raise InvalidUpdateError(f"parameter {name!r} has dtype {array.dtype}, wanted real numbers")
    return np.array(array, dtype=own.dtype, order="C")


def _start_counting_anew(estimator: BaseEstimator) -> None:
    if hasattr(estimator, "coefs_"):
        # The next call makes a new one; there is no public way to ask for it.
        vars(estimator).pop("_optimizer", None)
        estimator.t_ = 0
    elif hasattr(estimator, "t_"):
        estimator.t_ = 1.0
