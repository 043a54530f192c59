"""Keras 3 models to named arrays and back, whatever the backend computes with.

All of a model's weights travel, the statistics of normalisation layers included; seeds of random
layers and metrics stay. Keras numbers unnamed layers through a whole process, so that the second
model of a script has other names than the first; here the numbers are counted anew in the order of
the model, and a model has the same names at every plant.

Examples
--------
>>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
>>> load_parameters(model, {"dense/kernel": np.array([[1.0], [2.0]])})
>>> parameters_of(model)
{'dense/kernel': array([[1.],
       [2.]], dtype=float32)}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clma.errors import (
    InvalidConfigError,
    InvalidUpdateError,
    MissingExtraError,
    ShapeMismatchError,
)

try:
    import keras
except ImportError as error:  # pragma: no cover - the base install has no Keras
    raise MissingExtraError(
        "clma.adapters.keras needs Keras 3 and a backend: pip install 'clma[keras]' torch"
    ) from error

__all__ = ["load_parameters", "losses_of", "parameters_of", "trainable_names"]

_COUNTED = re.compile(r"_\d+$")


def parameters_of(model: keras.Model) -> dict[str, NDArray[Any]]:
    """Copy a model's weights into arrays.

    Parameters
    ----------
    model : keras.Model
        Built: with an `Input`, or called once. Not modified.

    Returns
    -------
    dict of name to ndarray
        In the model's order and dtypes, except that bfloat16 becomes float32, which holds every
        bfloat16 exactly. Training the model further does not change them.

    Raises
    ------
    InvalidConfigError
        If the model has no weights yet, two of one name, or some of a dtype that NumPy lacks.
    """
    return {name: _array(name, weight) for name, weight in _weights(model).items()}


def load_parameters(model: keras.Model, parameters: Mapping[str, NDArray[Any]]) -> None:
    """Fill a model with arrays, in place; it keeps its dtypes and shapes.

    Nothing is written unless everything fits. An optimizer's moments stay.

    Parameters
    ----------
    model : keras.Model
        Built: with an `Input`, or called once.
    parameters : mapping of name to ndarray
        Exactly the names and shapes of `parameters_of`. Not modified. Floats are rounded to the
        nearest whole number where the model counts in integers.

    Raises
    ------
    InvalidConfigError
        If the model has no weights yet, or two of one name.
    ShapeMismatchError
        If a name is missing or unknown, or a shape differs; nothing is broadcast.
    InvalidUpdateError
        If an array holds neither booleans nor real numbers.
    """
    weights = _weights(model)
    missing, unknown = sorted(weights.keys() - parameters), sorted(parameters.keys() - weights)
    if missing or unknown:
        raise ShapeMismatchError(f"parameters lack {missing} and have unknown {unknown}")
    arrays = {name: _fitting(name, parameters[name], own) for name, own in weights.items()}
    for name, weight in weights.items():
        weight.assign(arrays[name])


def trainable_names(model: keras.Model) -> tuple[str, ...]:
    """Return the names that an optimizer may change, in order: no statistics, no frozen ones."""
    trained = {id(weight) for weight in model.trainable_weights}
    return tuple(name for name, weight in _weights(model).items() if id(weight) in trained)


def losses_of(model: keras.Model, samples: ArrayLike, targets: ArrayLike) -> NDArray[np.float64]:
    """Measure a model on each sample by the loss it was compiled with, for `DriftReporter`.

    Parameters
    ----------
    model : keras.Model
        Compiled, with one output.
    samples : array_like of shape (n_samples, ...)
    targets : array_like of shape (n_samples, ...)
        As the loss takes them.

    Returns
    -------
    ndarray of shape (n_samples,)
        Regularisation is not in it: it says nothing of the data.

    Raises
    ------
    InvalidConfigError
        If the model was not compiled with one loss.
    """
    loss = getattr(model, "loss", None)
    if not callable(loss) and not isinstance(loss, str):
        raise InvalidConfigError(f"model.loss is {loss!r}, wanted one loss: compile(loss=...)")
    found = keras.losses.get(loss)
    per_sample = found.call if isinstance(found, keras.losses.Loss) else found
    outputs = keras.ops.convert_to_tensor(model.predict(np.asarray(samples), verbose=0))
    values = per_sample(keras.ops.convert_to_tensor(np.asarray(targets)), outputs)
    array = np.asarray(keras.ops.convert_to_numpy(values), np.float64)
    return np.asarray(array.reshape(len(array), -1).mean(axis=1))


def _weights(model: keras.Model) -> dict[str, Any]:
    """Return a model's variables by name, in the model's order."""
    named: dict[str, Any] = {}
    seen: dict[tuple[str, ...], list[str]] = {}
    for weight in model.weights:
        *folders, last = weight.path.split("/")
        if folders and folders[0] == model.name:
            folders = folders[1:]
        layers = [_counted_anew(seen, folders, depth) for depth in range(len(folders))]
        name = "/".join([*layers, last])
        if name in named:
            raise InvalidConfigError(f"two weights of the model have the name {name!r}")
        named[name] = weight
    if not named:
        raise InvalidConfigError("the model has no weights yet: give it an Input, or call it once")
    return named


def _counted_anew(seen: dict[tuple[str, ...], list[str]], folders: list[str], depth: int) -> str:
    """Return a folder's name with its number among those that share its place and its kind."""
    kind = _COUNTED.sub("", folders[depth])
    alike = seen.setdefault((*folders[:depth], kind), [])
    if folders[depth] not in alike:
        alike.append(folders[depth])
    number = alike.index(folders[depth])
    return f"{kind}_{number}" if number else kind


def _array(name: str, weight: Any) -> NDArray[Any]:
    array = np.asarray(keras.ops.convert_to_numpy(weight))
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise InvalidConfigError(f"weight {name!r} has dtype {array.dtype}, which cannot travel")
    return np.array(array, order="C")


def _fitting(name: str, values: ArrayLike, own: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != tuple(own.shape):
        raise ShapeMismatchError(
            f"parameter {name!r} has shape {list(array.shape)}, the model wants {list(own.shape)}"
        )
    if array.dtype.kind not in "biuf":
        raise InvalidUpdateError(f"parameter {name!r} has dtype {array.dtype}, wanted real numbers")
    if "int" in str(own.dtype) and array.dtype.kind == "f":
        array = np.rint(array)
    # A native, writable copy: backends read neither foreign byte order nor read-only memory.
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
