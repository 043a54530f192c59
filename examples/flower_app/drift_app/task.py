"""The task itself: data that drift, a linear model, its losses and its training."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Samples = tuple[NDArray[np.float32], NDArray[np.int64]]

N_NODES, N_CLASSES, N_EPOCHS = 10, 10, 10
N_OWN, N_FRESH = 140, 100
LEARNING_RATE, BATCH = 0.2, 16
FIRST_DRIFT = 3
"""Round from which on two more nodes a time have drifted; 0 and 1 never do."""


def drifted(node: int, round_num: int) -> bool:
    """Tell whether a node's labels mean something else by now."""
    return node >= 2 and round_num >= FIRST_DRIFT + 2 * (node // 2 - 1)


def fresh_samples(node: int, round_num: int, *, held_out: bool = False) -> Samples:
    """Return a node's own samples of a round; odd and even nodes drift in opposite ways."""
    x, y = _images()
    rng = np.random.default_rng([node, round_num])
    own = N_OWN * node + rng.choice(N_OWN, N_FRESH, replace=False)
    rows = np.arange(N_OWN * N_NODES, len(y)) if held_out else own
    step = (3 if node % 2 else -3) if drifted(node, round_num) else 0
    return x[rows], (y[rows] + step) % N_CLASSES


def new_model() -> ArrayRecord:
    """Return the model that all start from."""
    model = {"weight": np.zeros((N_CLASSES, 64), np.float32), "bias": np.zeros(10, np.float32)}
    return ArrayRecord({name: Array(value) for name, value in model.items()})


def losses(arrays: ArrayRecord, samples: Samples) -> NDArray[Any]:
    """Return the cross-entropy of every sample, shape (n,)."""
    x, y = samples
    log_p = _log_p(arrays["weight"].numpy(), arrays["bias"].numpy(), x)
    return -log_p[range(len(y)), y]


def accuracy(arrays: ArrayRecord, samples: Samples) -> float:
    """Return the share of right answers."""
    x, y = samples
    found = _log_p(arrays["weight"].numpy(), arrays["bias"].numpy(), x).argmax(axis=1)
    return float((found == y).mean())


def fit(arrays: ArrayRecord, samples: Samples, rng: np.random.Generator) -> ArrayRecord:
    """Train by stochastic gradient descent."""
    (x, y), weight, bias = samples, arrays["weight"].numpy(), arrays["bias"].numpy()
    for _ in range(N_EPOCHS):
        for rows in np.array_split(rng.permutation(len(y)), len(y) // BATCH):
            error = np.exp(_log_p(weight, bias, x[rows]))
            error[range(len(rows)), y[rows]] -= 1
            weight = weight - LEARNING_RATE * error.T @ x[rows] / len(rows)
            bias = bias - LEARNING_RATE * error.mean(axis=0)
    return ArrayRecord({"weight": Array(weight), "bias": Array(bias)})


def _log_p(weight: NDArray[Any], bias: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    logits = x @ weight.T + bias
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


@cache
def _images() -> Samples:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = (digits.data[order] / 16).astype(np.float32)
    return x, digits.target[order].astype(np.int64)
