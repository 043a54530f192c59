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

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clma.adapters.factory import load_factory
from clma.adapters.torch import load_parameters, parameters_of
from clma.errors import InvalidConfigError, ShapeMismatchError
from clma.simulation.fleet import ModelSpec
from clma.simulation.training_config import TrainingConfig

__all__ = ["TrainingConfig", "losses", "predict", "train"]

_DEFAULT_MODEL = ModelSpec()
EVALUATED_TOGETHER = 2**17  # numbers in the inputs of a forward pass: what caches still hold
_per_thread = threading.local()


def train(
    parameters: Mapping[str, NDArray[Any]],
    windows: NDArray[np.float32],
    labels: NDArray[np.int64],
    config: TrainingConfig,
    rng: np.random.Generator,
    *,
    model: ModelSpec = _DEFAULT_MODEL,
    proximal_mu: float = 0.0,
    learning_rate_factor: float = 1.0,
    watch_loss: Callable[[float, int], None] | None = None,
) -> dict[str, NDArray[Any]]:
    """Train from `parameters` with SGD, momentum and clipped gradients.

    Parameters
    ----------
    parameters : mapping of name to ndarray
        Where to start. Not modified.
    windows : ndarray of shape (n, ...)
        Inputs as the module takes them, ``(n, n_variables, window)`` for windows of a plant.
    labels : ndarray of shape (n,)
        Class indices.
    config : TrainingConfig
    rng : numpy.random.Generator
        Shuffles the epochs.
    model : ModelSpec
        Module that the parameters belong to.
    proximal_mu : float, >= 0
        Weight of the proximal term ``mu / 2 * ||w - parameters||^2`` of FedProx [1]_ over what is
        learned; statistics of normalisation layers are not in it. 0 trains without.
    learning_rate_factor : float, > 0
        Multiplies ``config.learning_rate``.
    watch_loss : callable, optional
        Is told the mean loss of every batch, just before the step that it leads to, and the size of
        the batch.

    Returns
    -------
    dict of name to ndarray
        With the names, shapes and dtypes of `parameters` as the module keeps them.

    Raises
    ------
    ShapeMismatchError
        If `labels` and `windows` differ in length, or there are none, or the parameters do not fit.
    InvalidConfigError
        If `proximal_mu` or `learning_rate_factor` is out of range.

    References
    ----------
    .. [1] Li et al. (2020), "Federated Optimization in Heterogeneous Networks", MLSys, equation 2.
    """
    if not (0 <= proximal_mu < math.inf and 0 < learning_rate_factor < math.inf):
        raise InvalidConfigError(
            f"got proximal_mu {proximal_mu}, learning_rate_factor {learning_rate_factor}; "
            "wanted finite numbers, >= 0 and > 0"
        )
    x, y = _tensors(windows, labels)
    module = _filled(model, parameters).train()
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    sent = [parameter.detach().clone() for parameter in learned] if proximal_mu else []
    rate = config.learning_rate * learning_rate_factor
    velocities: list[torch.Tensor] = []
    for _ in range(config.local_epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for batch in torch.split(order, config.batch_size):
            loss = torch.nn.functional.cross_entropy(module(x[batch]), y[batch])
            if watch_loss is not None:
                watch_loss(float(loss.detach()), len(batch))
            gradients = torch.autograd.grad(loss, learned)
            if sent:
                _pull_back(gradients, learned, sent, proximal_mu)
            if config.clip_norm < math.inf:
                _clip(gradients, config.clip_norm)
            _step(learned, gradients, velocities, rate, config.momentum)
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
    logits = _logits(_filled(model, parameters), x)
    return np.array(torch.nn.functional.cross_entropy(logits.double(), y, reduction="none").numpy())


def predict(
    parameters: Mapping[str, NDArray[Any]],
    windows: NDArray[np.float32],
    *,
    model: ModelSpec = _DEFAULT_MODEL,
) -> NDArray[np.int64]:
    """Return the most likely class of each window, shape (n,); of equals the lowest index."""
    return np.asarray(class_logits(parameters, windows, model=model).argmax(axis=1))


def class_logits(
    parameters: Mapping[str, NDArray[Any]],
    windows: NDArray[np.float32],
    *,
    model: ModelSpec = _DEFAULT_MODEL,
) -> NDArray[np.float32]:
    """Return what the model says of each window and class, shape (n, n_classes)."""
    x = torch.from_numpy(np.array(windows, dtype=np.float32))
    return np.array(_logits(_filled(model, parameters), x).numpy())


def _pull_back(
    gradients: Sequence[torch.Tensor],
    learned: Sequence[torch.Tensor],
    sent: Sequence[torch.Tensor],
    proximal_mu: float,
) -> None:
    with torch.no_grad():
        for gradient, weights, start in zip(gradients, learned, sent, strict=True):
            gradient.add_(weights - start, alpha=proximal_mu)


def _clip(gradients: Sequence[torch.Tensor], clip_norm: float) -> None:
    total = torch.nn.utils.get_total_norm(gradients)
    factor = torch.clamp(clip_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)


def _step(
    learned: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    velocities: list[torch.Tensor],
    rate: float,
    momentum: float,
) -> None:
    """Do what a step of `torch.optim.SGD` does, to the bit.

    These networks are so small that the optimiser's own bookkeeping is a third of the training.
    """
    with torch.no_grad():
        if not velocities:
            velocities += [gradient.clone() for gradient in gradients]
        else:
            for velocity, gradient in zip(velocities, gradients, strict=True):
                velocity.mul_(momentum).add_(gradient)
        for weights, velocity in zip(learned, velocities, strict=True):
            weights.add_(velocity, alpha=-rate)


def _logits(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    module.eval()
    n_together = max(EVALUATED_TOGETHER * len(x) // max(x.numel(), 1), 1)
    with torch.no_grad():
        return torch.cat([module(part) for part in torch.split(x, n_together)])


def _filled(model: ModelSpec, parameters: Mapping[str, NDArray[Any]]) -> torch.nn.Module:
    modules: dict[ModelSpec, torch.nn.Module] = _per_thread.__dict__.setdefault("modules", {})
    torch.set_num_threads(1)
    if model not in modules:
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
