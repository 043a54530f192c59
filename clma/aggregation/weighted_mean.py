"""The weighted mean of a cohort's weights (FedAvg's server step).

McMahan et al. (2017), "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS, Algorithm 1.

Examples
--------
>>> weighted_mean([np.array([0.0]), np.array([4.0])], [1, 3]).tolist()
[3.0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import EmptyCohortError, InvalidUpdateError, ShapeMismatchError
from clma.parameters.tensor_file import FLOAT_DTYPES, TensorFile, serialize_tensors

__all__ = ["average_models", "weighted_mean"]


def weighted_mean(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[np.float64]:
    """Average arrays of one shape.

    Parameters
    ----------
    arrays : sequence of n ndarray, all of one shape
        Not modified; nothing is broadcast.
    weights : sequence of n float >= 0
        Example counts; only their ratios matter.

    Returns
    -------
    ndarray, float64
        Summed in the order given: the caller sorts by client id, so that the order of arrival
        cannot change a bit.

    Raises
    ------
    EmptyCohortError
        If there is no array, or all weights are 0: nobody's model is an average of nothing.
    InvalidUpdateError
        If a weight is negative or not finite.
    ShapeMismatchError
        If shapes differ.
    """
    shares = _shares(len(arrays), weights)
    shape = np.shape(arrays[0])
    total = np.zeros(shape)
    for array, share in zip(arrays, shares, strict=True):
        if np.shape(array) != shape:
            raise ShapeMismatchError(f"mean of shapes {list(shape)} and {list(np.shape(array))}")
        total += np.asarray(array, dtype=np.float64) * share
    return total


def _shares(n: int, weights: Sequence[float]) -> list[float]:
    if n == 0 or len(weights) != n:
        raise EmptyCohortError(f"mean of {n} arrays with {len(weights)} weights")
    for weight in weights:
        if not np.isfinite(weight) or weight < 0:
            raise InvalidUpdateError(f"weight {weight} in a mean, wanted a finite number >= 0")
    total = sum(weights)
    if total <= 0:
        raise EmptyCohortError(f"mean of {n} arrays whose weights are all 0")
    return [weight / total for weight in weights]


def average_models(
    files: Sequence[Callable[[], TensorFile]], weights: Sequence[float], base: TensorFile
) -> bytes:
    """Average models tensor by tensor.

    Parameters
    ----------
    files : sequence of n callables
        Each opens one client's file, mapped and not read: one tensor at a time is in memory.
    weights : sequence of n float >= 0
    base : TensorFile
        The federation's model: its names, shapes and dtypes are the result's.

    Returns
    -------
    bytes
        A safetensors file; equal input gives equal bytes.

    Raises
    ------
    EmptyCohortError
        If there is no file, or all weights are 0.

    Notes
    -----
    Floats are summed in float64 and rounded once to the model's dtype. An integer tensor is a
    counter (batches seen by a normalisation layer): it becomes the largest of the clients' with a
    positive weight, and keeps its dtype. A boolean tensor is a mask of the architecture: it stays
    the base model's.
    """
    _shares(len(files), weights)
    voters = [(open_file, w) for open_file, w in zip(files, weights, strict=True) if w > 0]
    opened = [open_file() for open_file, _ in voters]
    kept = [weight for _, weight in voters]
    try:
        tensors: dict[str, NDArray[Any]] = {}
        for spec in base.specs:
            if spec.dtype == "BOOL":
                tensors[spec.name] = base.read(spec.name)
                continue
            arrays = [file.read(spec.name) for file in opened]
            tensors[spec.name] = (
                weighted_mean(arrays, kept)
                if spec.dtype in FLOAT_DTYPES
                else np.maximum.reduce(arrays)
            )
        return serialize_tensors(tensors, base.specs)
    finally:
        for file in opened:
            file.close()
