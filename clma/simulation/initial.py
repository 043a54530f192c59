"""Initial weights from a seed, whatever was drawn before.

Examples
--------
>>> module = initialize(lambda: nn.Linear(2, 2), np.random.default_rng(0))
>>> module.bias.tolist()
[0.0, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clma.adapters.torch import load_parameters

__all__ = ["initialize"]

_Module = TypeVar("_Module", bound=nn.Module)


def initialize(make: Callable[[], _Module], rng: np.random.Generator) -> _Module:
    """Make a module and draw its weights; torch's global generator is not touched.

    Weights are uniform with the variance of He et al. [1]_, biases zero, normalisation layers the
    identity. A layer named ``output`` is drawn small: drift detectors measure later losses by a
    first one of ``ln(n_classes)``.

    Parameters
    ----------
    make : callable
        Builds the module.
    rng : numpy.random.Generator

    References
    ----------
    .. [1] He et al. (2015), "Delving Deep into Rectifiers", ICCV, equation 10.
    """
    # Layers draw their weights from torch's global generator unless they are made without memory.
    with torch.device("meta"):
        module = make()
    module.to_empty(device="cpu")
    load_parameters(module, _drawn(module, rng))
    return module


def _drawn(module: nn.Module, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    drawn = {}
    for name, tensor in module.state_dict().items():
        bound = 0.0
        if tensor.ndim > 1:
            gain = 0.1 if name.startswith("output.") else math.sqrt(2.0)
            bound = gain * math.sqrt(3.0 / math.prod(tensor.shape[1:]))
        drawn[name] = rng.uniform(-bound, bound, size=tuple(tensor.shape)).astype(np.float32)
        if tensor.ndim == 1 and name.endswith((".weight", ".running_var")):
            drawn[name] += np.float32(1.0)
    return drawn
