"""The weighted mean of a cohort's weights (FedAvg's server step).

McMahan et al. (2017), "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS, Algorithm 1.

Examples
--------
>>> weighted_mean([np.array([0.0]), np.array([4.0])], [1, 3]).tolist()
[3.0]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.contract import OpenTensors
from clma.config import FederationConfig
from clma.errors import EmptyCohortError, InvalidUpdateError, ShapeMismatchError
from clma.parameters.tensor_file import (
    FLOAT_DTYPES,
    encode_values,
    file_order,
    join_tensors,
)
from clma.parameters.tensor_header import tensor_bytes
from clma.records import ArtifactRef, SealedUpdate, TensorSpec
from clma.sweep.columns import plan_columns
from clma.sweep.means import Sweep, mean_of_rows

__all__ = ["average_models", "join_model", "shares_of", "weighted_mean"]


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


def shares_of(updates: Sequence[SealedUpdate], config: FederationConfig) -> list[float]:
    """Return every update's share in the mean of all, as the configuration weighs them.

    Raises
    ------
    EmptyCohortError
        If there is none, or all weights are 0.
    """
    equal = config.aggregation.weight == "equal"
    return _shares(len(updates), [1.0 if equal else u.n_examples for u in updates])


def average_models(
    updates: Sequence[SealedUpdate],
    config: FederationConfig,
    base: ArtifactRef,
    open_tensors: OpenTensors,
) -> bytes:
    """Average models, column by column, from their files.

    Parameters
    ----------
    updates : sequence of n SealedUpdate
        In the order of summation: the caller sorts by client id.
    config : FederationConfig
        How they are weighed.
    base : ArtifactRef
        A model of the federation: its names, shapes and dtypes are the result's.
    open_tensors : callable

    Returns
    -------
    bytes
        A safetensors file; equal input gives equal bytes.

    Raises
    ------
    EmptyCohortError
        If there is no update, or all weights are 0.
    """
    shares = shares_of(updates, config)
    with open_tensors(base) as file:
        columns = plan_columns(file.specs)
    mean = mean_of_rows(Sweep(columns, columns.stripes(), open_tensors), updates, shares)
    return join_model([mean], updates, shares, base, open_tensors)


def join_model(
    slices: Sequence[NDArray[np.uint8]],
    updates: Sequence[SealedUpdate],
    shares: Sequence[float],
    base: ArtifactRef,
    open_tensors: OpenTensors,
) -> bytes:
    """Make a model file of the mean's columns and of what cannot be averaged.

    Parameters
    ----------
    slices : sequence of ndarray of bytes
        The columns of all stripes as they lie in a file, in their order.
    updates, shares : sequence
        Whose mean it is.
    base : ArtifactRef
    open_tensors : callable

    Notes
    -----
    An integer tensor is a counter (batches seen by a normalisation layer): it becomes the largest
    of the clients' with a positive weight, and keeps its dtype. A boolean tensor is a mask of the
    architecture: it stays the base model's.
    """
    with open_tensors(base) as file:
        specs = file_order(file.specs)
        others = {s.name: file.read(s.name) for s in specs if s.dtype == "BOOL"}
    counters = [s.name for s in specs if s.dtype not in FLOAT_DTYPES and s.dtype != "BOOL"]
    if counters:
        others |= _largest(
            counters, [u for u, s in zip(updates, shares, strict=True) if s], open_tensors
        )
    return join_tensors(specs, _buffers(specs, slices, others))


def _largest(
    names: Sequence[str], updates: Sequence[SealedUpdate], open_tensors: OpenTensors
) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for update in updates:
        with open_tensors(update.tensors) as file:
            for name in names:
                values = file.read(name)
                found[name] = np.maximum(found.get(name, values), values)
    return found


def _buffers(
    specs: Sequence[TensorSpec],
    slices: Sequence[NDArray[np.uint8]],
    others: Mapping[str, NDArray[Any]],
) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of every tensor; one that lies in several slices comes in pieces."""
    left = deque(slices)
    for spec in specs:
        if spec.name in others:
            yield encode_values(np.asarray(others[spec.name]), spec.dtype)
            continue
        wanted = tensor_bytes(spec)
        while wanted:
            taken, rest = left[0][:wanted], left[0][wanted:]
            wanted -= taken.size
            yield taken
            left[0] = rest
            if not rest.size:
                left.popleft()
