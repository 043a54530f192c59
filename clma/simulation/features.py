"""What a fleet's network sees in its samples before its last layer decides: the feature extractor.

Examples
--------
>>> from clma.simulation.recipes import load_fleet
>>> initial_extractor(load_fleet(None, "plant", seed=0))(np.zeros((3, 17, 30), np.float32)).shape
(3, 64)
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from clma.adapters.factory import load_factory
from clma.adapters.torch import load_parameters
from clma.errors import InvalidConfigError
from clma.signatures.signature import FeatureExtractor
from clma.simulation.fleet import Fleet

__all__ = ["initial_extractor"]


def initial_extractor(fleet: Fleet) -> FeatureExtractor:
    """Return the fleet's network with its initial weights, without its last linear layer.

    Parameters
    ----------
    fleet : Fleet

    Returns
    -------
    callable
        Maps samples of shape (n, ...) to features of shape (n, n_features), float32.

    Raises
    ------
    InvalidConfigError
        If the network has no linear layer.
    """
    torch.set_num_threads(1)
    module: torch.nn.Module = load_factory(fleet.model.factory)(**dict(fleet.model.arguments))
    load_parameters(module, fleet.initial_parameters())
    module.eval()
    linear = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
    if not linear:
        raise InvalidConfigError(
            f"model {fleet.model.factory} has no linear layer, fecfl wants one to leave out"
        )
    seen: list[torch.Tensor] = []
    linear[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    def extract(samples: NDArray[np.floating]) -> NDArray[np.floating]:
        seen.clear()
        with torch.no_grad():
            module(torch.from_numpy(np.array(samples, dtype=np.float32)))
        return np.array(seen[-1].numpy())

    return extract
