"""What a client does with its windows: train, measure losses, predict.

Modules are built once per thread and refilled on every call. Each thread computes with one core:
the networks are small, and the order of a sum must not depend on how many cores there are.

Examples
--------
>>> from clma.simulation.cnn import initial_parameters
>>> windows = np.zeros((4, 17, 30), np.float32)
>>> predict(initial_parameters(0), windows).shape
(4,)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clma.adapters.factory import load_factory
from clma.adapters.torch import load_parameters, parameters_of
from clma.errors import InvalidConfigError, ShapeMismatchError
from clma.simulation.fleet import ModelSpec

__all__ = ["TrainingConfig", "losses", "predict", "train"]

_DEFAULT_MODEL = ModelSpec()
_per_thread = threading.local()


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Local training; the defaults are those of the evidence on PRONTO.

    Parameters
    ----------
    learning_rate : float, > 0
    momentum : float in [0, 1)
        Starts at zero in every round.
    batch_size, local_epochs : int, >= 1
    clip_norm : float, > 0
        Largest Euclidean norm of a step's gradient.
    """

    learning_rate: float = 0.02
    momentum: float = 0.9
    batch_size: int = 16
    local_epochs: int = 3
    clip_norm: float = 2.0

    def __post_init__(self) -> None:
        if min(self.learning_rate, self.clip_norm) <= 0 or not 0 <= self.momentum < 1:
            raise InvalidConfigError(
                f"{self}: wanted learning_rate, clip_norm > 0, momentum in [0, 1)"
            )
        if min(self.batch_size, self.local_epochs) < 1:
            raise InvalidConfigError(f"{self}: wanted batch_size and local_epochs of at least 1")


def train(
    parameters: Mapping[str, NDArray[Any]],
    windows: NDArray[np.float32],
    labels: NDArray[np.int64],
    config: TrainingConfig,
    rng: np.random.Generator,
    *,
    model: ModelSpec = _DEFAULT_MODEL,
) -> dict[str, NDArray[Any]]:
    """Train from `parameters` with SGD, momentum and clipped gradients.

    Parameters
    ----------
    parameters : mapping of name to ndarray
        Where to start. Not modified.
    windows : ndarray of shape (n, n_variables, window)
    labels : ndarray of shape (n,)
        Class indices.
    config : TrainingConfig
    rng : numpy.random.Generator
        Shuffles the epochs.
    model : ModelSpec
        Module that the parameters belong to.

    Returns
    -------
    dict of name to ndarray
        With the names, shapes and dtypes of `parameters` as the module keeps them.

    Raises
    ------
    ShapeMismatchError
        If `labels` and `windows` differ in length, or there are none, or the parameters do not fit.
    """
    x, y = _tensors(windows, labels)
    module = _filled(model, parameters).train()
    optimizer = torch.optim.SGD(
        module.parameters(), lr=config.learning_rate, momentum=config.momentum
    )
    for _ in range(config.local_epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for batch in torch.split(order, config.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(x[batch]), y[batch])
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
            optimizer.step()
    return parameters_of(module)


def losses(
    parameters: Mapping[str, NDArray[Any]],
    windows: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    model: ModelSpec = _DEFAULT_MODEL,
) -> NDArray[np.float64]:
    """Return the cross-entropy of each window in nats, shape (n,), for `parameters` as they are.

    Raises
    ------
    ShapeMismatchError
        If `labels` and `windows` differ in length, or there are none, or the parameters do not fit.
    """
    x, y = _tensors(windows, labels)
    with torch.no_grad():
        values = torch.nn.functional.cross_entropy(
            _filled(model, parameters).eval()(x).double(), y, reduction="none"
        )
    return np.array(values.numpy())


def predict(
    parameters: Mapping[str, NDArray[Any]],
    windows: NDArray[np.float32],
    *,
    model: ModelSpec = _DEFAULT_MODEL,
) -> NDArray[np.int64]:
    """Return the most likely class of each window, shape (n,); of equals the lowest index."""
    x = torch.from_numpy(np.array(windows, dtype=np.float32))
    with torch.no_grad():
        return np.array(_filled(model, parameters).eval()(x).argmax(dim=1).numpy())


def _filled(model: ModelSpec, parameters: Mapping[str, NDArray[Any]]) -> torch.nn.Module:
    modules: dict[ModelSpec, torch.nn.Module] = _per_thread.__dict__.setdefault("modules", {})
    if model not in modules:
        torch.set_num_threads(1)
        modules[model] = load_factory(model.factory)(**dict(model.arguments))
    load_parameters(modules[model], parameters)
    return modules[model]


def _tensors(
    windows: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    if len(windows) != len(labels) or len(labels) == 0:
        raise ShapeMismatchError(
            f"{len(windows)} windows, {len(labels)} labels; wanted as many, not 0"
        )
    # Copies: torch warns about read-only memory, and a caller's arrays must stay the caller's.
    x = torch.from_numpy(np.array(windows, dtype=np.float32))
    return x, torch.from_numpy(np.array(labels, dtype=np.int64))
