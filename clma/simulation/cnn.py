"""A small 1D convolutional network for windows of process variables.

Two convolutions look for short patterns across all variables, the mean, the spread and the extremes
over time say how strong each one was. No batch norm: its running statistics would mix clients that
have drifted apart.

Examples
--------
>>> cnn1d()(torch.zeros(2, 17, 30)).shape
torch.Size([2, 5])
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clma.adapters.torch import parameters_of
from clma.errors import InvalidConfigError
from clma.simulation.initial import initialize

__all__ = ["Cnn1d", "cnn1d", "initial_parameters"]

N_CHANNELS = 48
KERNEL = 5
N_HIDDEN = 64


class Cnn1d(nn.Module):
    """Windows in, logits out; `cnn1d` builds one with initial weights.

    Parameters
    ----------
    n_variables, n_classes : int, >= 1
    window : int, >= 8
        Seconds (rows) of a window.
    """

    def __init__(self, n_variables: int, n_classes: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.conv1 = nn.Conv1d(n_variables, N_CHANNELS, KERNEL, padding=KERNEL // 2)
        self.conv2 = nn.Conv1d(N_CHANNELS, N_CHANNELS, KERNEL, padding=KERNEL // 2)
        self.hidden = nn.Linear(3 * N_CHANNELS, N_HIDDEN)
        self.output = nn.Linear(N_HIDDEN, n_classes)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Map windows (batch, n_variables, window) to logits (batch, n_classes)."""
        x = torch.relu(self.conv1(windows))
        x = torch.relu(self.conv2(nn.functional.max_pool1d(x, 2)))
        x = torch.cat([x.mean(dim=2), x.amax(dim=2), x[:, :, -1]], dim=1)
        logits: torch.Tensor = self.output(torch.relu(self.hidden(x)))
        return logits


def cnn1d(n_variables: int = 17, n_classes: int = 5, window: int = 30, seed: int = 0) -> Cnn1d:
    """Build the network; equal arguments give equal weights, the global generator is not touched.

    Raises
    ------
    InvalidConfigError
        If a size is too small.
    """
    if min(n_variables, n_classes) < 1 or window < 8:
        raise InvalidConfigError(
            f"cnn1d: got {n_variables} variables, {n_classes} classes, window {window}; "
            "wanted at least 1, 1 and 8"
        )
    return initialize(
        lambda: Cnn1d(n_variables, n_classes, window), np.random.default_rng([seed, 0xC11])
    )


def initial_parameters(seed: int, **arguments: int) -> dict[str, NDArray[Any]]:
    """Return the weights that ``cnn1d(**arguments, seed=seed)`` starts from."""
    return parameters_of(cnn1d(**arguments, seed=seed))
