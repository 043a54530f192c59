"""What each cohorting method asks of the clients and what it sends them: read before any round.

Light on purpose: plants read it, and the configuration refuses by it what the privacy policy does
not share. How a method decides is in `clma.cohorting.methods`.

Examples
--------
>>> sorted(METHODS["feddrift"].requires - METHODS["cosine"].requires)
['loss_vector']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["METHODS", "MethodTraits", "required"]

_AVERAGED = frozenset({"weights", "examples"})
_FLAGGED = _AVERAGED | {"flag"}


@dataclass(frozen=True, slots=True)
class MethodTraits:
    """A method, seen from the clients.

    Parameters
    ----------
    requires : frozenset of str
        What ``privacy.share`` has to name.
    follows_flags : bool
        A drift flag changes what happens to the client.
    offers_all : bool
        A client is sent the models of all cohorts, measures its loss on each before it trains, and
        trains the best one.
    """

    requires: frozenset[str] = _FLAGGED
    follows_flags: bool = True
    offers_all: bool = False

    @property
    def needs_signature(self) -> bool:
        """Clients are placed by signatures of their data, before the round."""
        return "signature" in self.requires


METHODS: Mapping[str, MethodTraits] = {
    "cosine": MethodTraits(),
    "signed_ks": MethodTraits(),
    "singletons": MethodTraits(),
    "single": MethodTraits(_AVERAGED, follows_flags=False),
    "given": MethodTraits(_AVERAGED, follows_flags=False),
    "local": MethodTraits(_AVERAGED, follows_flags=False),
    "cfl": MethodTraits(_AVERAGED, follows_flags=False),
    "pacfl": MethodTraits(_AVERAGED | {"signature"}, follows_flags=False),
    "fecfl": MethodTraits(_AVERAGED | {"signature"}, follows_flags=False),
    "ifca": MethodTraits(_AVERAGED | {"choice"}, follows_flags=False, offers_all=True),
    "feddrift": MethodTraits(_FLAGGED | {"loss_vector"}, offers_all=True),
    "feddrift_eager": MethodTraits(_FLAGGED | {"loss_vector"}, offers_all=True),
}
"""By the name in ``cohorting.method``."""


def required(method: str, choice: str = "none", onboarding: str = "none") -> frozenset[str]:
    """Return what ``privacy.share`` has to name.

    Parameters
    ----------
    method : str
        ``cohorting.method``.
    choice : str
        ``cohorting.choice``.
    onboarding : str
        ``onboarding.method``.
    """
    asked = set(METHODS[method].requires)
    asked |= {"choice"} if choice != "none" else set()
    asked |= {"signature"} if onboarding != "none" else set()
    return frozenset(asked)
