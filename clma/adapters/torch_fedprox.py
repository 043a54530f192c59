"""FedProx: a pull back to the model that was received, as a term of a plant's own loss.

Examples
--------
>>> module = torch.nn.Linear(1, 1, bias=False)
>>> term = proximal_term(module, mu=2.0)
>>> with torch.no_grad():
...     _ = module.weight.add_(3.0)
>>> round(float(term()), 4)
9.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from clma.adapters.torch import personal_names
from clma.errors import InvalidConfigError, MissingExtraError

try:
    import torch
except ImportError as error:  # pragma: no cover - the base install has no torch
    raise MissingExtraError(
        "clma.adapters.torch_fedprox needs torch: pip install 'clma[torch]'"
    ) from error

__all__ = ["proximal_term"]


def proximal_term(
    module: torch.nn.Module, *, mu: float, personal: Sequence[str] = ()
) -> Callable[[], torch.Tensor]:
    """Remember a module as it is now; return what its distance from there costs.

    Parameters
    ----------
    module : torch.nn.Module
        Filled with the received model, before training.
    mu : float, >= 0
        Strength; `PulledModel.proximal_mu` is the federation's. 0 costs nothing.
    personal : sequence of str
        Glob patterns of names that do not travel and are not pulled back.

    Returns
    -------
    callable
        Gives ``mu / 2 * ||w - w_received||^2`` as a scalar tensor, to be added to the loss of every
        batch. Over what an optimizer may change: neither buffers nor frozen parameters.

    Raises
    ------
    InvalidConfigError
        If `mu` is negative or not finite, or a pattern fits no name.

    References
    ----------
    .. [1] Li et al. (2020), "Federated Optimization in Heterogeneous Networks", MLSys, equation 2.
    """
    if not 0 <= mu < math.inf:
        raise InvalidConfigError(f"mu is {mu}, wanted a finite number >= 0")
    kept = personal_names(module, personal) if personal else frozenset[str]()
    # named_parameters names a tied tensor once, so that it is not pulled twice.
    learned = [p for n, p in module.named_parameters() if p.requires_grad and n not in kept]
    received = [parameter.detach().clone() for parameter in learned]

    def term() -> torch.Tensor:
        if not mu or not learned:
            return torch.zeros(())
        squares = [(p - r).square().sum() for p, r in zip(learned, received, strict=True)]
        return mu / 2 * torch.stack(squares).sum()

    return term
