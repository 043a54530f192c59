"""A cohort's model as a file: the columns that a rule came to, and what no rule applies to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.contract import OpenTensors
from clma.parameters.tensor_file import (
    FLOAT_DTYPES,
    encode_values,
    file_order,
    join_tensors,
)
from clma.parameters.tensor_header import tensor_bytes
from clma.records import ArtifactRef, SealedUpdate, TensorSpec

__all__ = ["join_model"]


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
