"""A multilayer perceptron for rows of sensors and small images.

Examples
--------
>>> mlp(64, 64, 10)(torch.zeros(2, 8, 8)).shape
torch.Size([2, 10])
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from clma.errors import InvalidConfigError
from clma.simulation.initial import initialize

__all__ = ["Mlp", "mlp"]


class Mlp(nn.Module):
    """Inputs of any shape in, logits out; `mlp` builds one with initial weights.

    Parameters
    ----------
    n_inputs, n_hidden, n_classes : int, >= 1
    """

    def __init__(self, n_inputs: int, n_hidden: int, n_classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_inputs, n_hidden)
        self.output = nn.Linear(n_hidden, n_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map inputs (batch, ...) of `n_inputs` numbers each to logits (batch, n_classes)."""
        logits: torch.Tensor = self.output(torch.relu(self.hidden(inputs.flatten(1))))
        return logits


def mlp(n_inputs: int, n_hidden: int = 64, n_classes: int = 10, seed: int = 0) -> Mlp:
    """Build the network; equal arguments give equal weights, the global generator is not touched.

    Raises
    ------
    InvalidConfigError
        If a size is too small.
    """
    if min(n_inputs, n_hidden, n_classes) < 1:
        raise InvalidConfigError(
            f"mlp: got {n_inputs} inputs, {n_hidden} hidden, {n_classes} classes; wanted at least 1"
        )
    return initialize(
        lambda: Mlp(n_inputs, n_hidden, n_classes), np.random.default_rng([seed, 0xC12])
    )
