"""From the mean of a cohort's voters to its next model, where the server has an optimiser.

An optimiser is a function of vectors (`flash`, `adaptive_fedavg`); here they are cut out of model
files and put back. To add one: a file in this folder with the paper in its docstring, a name in
`AggregationConfig.server_optimizer`, a line in `_STEPS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.adaptive_fedavg import AdaptiveState, learning_rate_factor, observe_model
from clma.aggregation.flash import FlashState, flash_step
from clma.cohorting.contract import OpenTensors
from clma.config import AggregationConfig
from clma.parameters.selectors import select_default
from clma.parameters.tensor_file import (
    MAX_MAGNITUDE,
    NUMPY_DTYPES,
    TensorLimits,
    serialize_tensors,
)
from clma.parameters.tensor_header import parse_header
from clma.records import ArtifactRef, TensorSpec

__all__ = ["Start", "Stepped", "take_step"]

Tensors = Mapping[str, NDArray[Any]]

LARGEST_BFLOAT16 = 3.3895313892515355e38


@dataclass(frozen=True, slots=True)
class Start:
    """From where a cohort's next model is a step.

    Parameters
    ----------
    sent : ArtifactRef
        The model that its voters were sent.
    memory : ArtifactRef or None
        What the optimiser knows of the cohort's rounds so far; None for a newborn one.
    """

    sent: ArtifactRef
    memory: ArtifactRef | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """A model after the server's step.

    Parameters
    ----------
    model, memory : bytes
        Safetensors files; equal input gives equal bytes.
    learning_rate_factor : float in (0, 1]
        For the clients' next training.
    """

    model: bytes
    memory: bytes
    learning_rate_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The learned parameters of the mean and of the model sent; what is remembered, if anything."""

    mean: NDArray[np.float64]
    sent: NDArray[np.float64]
    memory: Tensors


@dataclass(frozen=True, slots=True)
class _Step:
    weights: NDArray[np.float64]
    memory: dict[str, NDArray[Any]]
    learning_rate_factor: float = 1.0


def take_step(
    mean: bytes, start: Start, config: AggregationConfig, open_tensors: OpenTensors
) -> Stepped:
    """Make a cohort's model of its voters' mean.

    Parameters
    ----------
    mean : bytes
        A safetensors file: what the aggregation rule came to.
    start : Start
    config : AggregationConfig
        With a server optimiser.
    open_tensors : callable

    Notes
    -----
    Learned parameters are stepped. Statistics of normalisation layers and integers are none: they
    take the mean. A memory that is not this optimiser's, because the setting was changed, is
    dropped. A weight that a step would take beyond its dtype stays at its largest number. The
    whole model is in memory in float64, as a few vectors.
    """
    tensors, specs = _parsed(mean)
    names = select_default(specs)
    with open_tensors(start.sent) as file:
        sent = _joined([file.read(name) for name in names])
    vectors = _Vectors(
        _joined([tensors[name] for name in names]), sent, _remembered(start, open_tensors)
    )
    step = _STEPS[config.server_optimizer](vectors, config)
    if step.weights is not vectors.mean:
        by_name = {spec.name: spec for spec in specs}
        tensors |= _cut(step.weights, [by_name[name] for name in names])
        mean = serialize_tensors(tensors, specs)
    return Stepped(mean, serialize_tensors(step.memory), step.learning_rate_factor)


def _flash(vectors: _Vectors, config: AggregationConfig) -> _Step:
    state = FlashState.fresh(vectors.mean.size)
    if _fits(vectors.memory, {"mean", "square", "drift"}, state.mean):
        state = FlashState(**vectors.memory)
    state, step = flash_step(
        state, vectors.mean - vectors.sent, learning_rate=config.server_learning_rate
    )
    memory = {"mean": state.mean, "square": state.square, "drift": state.drift}
    return _Step(vectors.sent + step, memory)


def _adaptive(vectors: _Vectors, _config: AggregationConfig) -> _Step:
    state = AdaptiveState.fresh(vectors.mean.size)
    known = vectors.memory
    if _fits(known, {"mean", "n_rounds", "variance", "ratio"}, state.mean):
        state = AdaptiveState(
            int(known["n_rounds"]), known["mean"], float(known["variance"]), float(known["ratio"])
        )
    state = observe_model(state, vectors.mean)
    memory = {
        "mean": state.mean,
        "n_rounds": np.array(state.n_rounds, np.int64),
        "variance": np.array(state.variance),
        "ratio": np.array(state.ratio),
    }
    return _Step(vectors.mean, memory, learning_rate_factor(state))


_STEPS: Mapping[str, Callable[[_Vectors, AggregationConfig], _Step]] = {
    "flash": _flash,
    "adaptive_fedavg": _adaptive,
}


def _fits(memory: Tensors, names: set[str], vector: NDArray[np.float64]) -> bool:
    return memory.keys() == names and memory["mean"].shape == vector.shape


def _remembered(start: Start, open_tensors: OpenTensors) -> Tensors:
    if start.memory is None:
        return {}
    with open_tensors(start.memory) as file:
        return {spec.name: np.array(file.read(spec.name)) for spec in file.specs}


def _parsed(data: bytes) -> tuple[dict[str, NDArray[Any]], tuple[TensorSpec, ...]]:
    """Read a file that was made here and is not stored yet."""
    body = 8 + int.from_bytes(data[:8], "little")
    entries = parse_header(data[8:body], body_bytes=len(data) - body, limits=TensorLimits())
    tensors: dict[str, NDArray[Any]] = {}
    for name, entry in entries.items():
        spec, dtype = entry.spec, NUMPY_DTYPES[entry.spec.dtype]
        values = np.frombuffer(data, dtype, math.prod(spec.shape), offset=body + entry.start)
        if spec.dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = values.reshape(spec.shape)
    return tensors, tuple(entry.spec for entry in entries.values())


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    flat = [np.ravel(array).astype(np.float64) for array in arrays]
    return np.concatenate([np.empty(0), *flat])


def _cut(weights: NDArray[np.float64], specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {}
    first = 0
    for spec in specs:
        stop = first + math.prod(spec.shape)
        largest = _largest(spec.dtype)
        tensors[spec.name] = np.clip(weights[first:stop], -largest, largest).reshape(spec.shape)
        first = stop
    return tensors


def _largest(dtype: str) -> float:
    if dtype == "F64":
        return MAX_MAGNITUDE
    return LARGEST_BFLOAT16 if dtype == "BF16" else float(np.finfo(NUMPY_DTYPES[dtype]).max)
