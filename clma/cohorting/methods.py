"""The cohorting methods: who votes, who is compared, who belongs together.

What a method asks of the clients is in `clma.methods`, what it does when a round opens in
`clma.cohorting.opening`. To add one: its traits there, a file here with the functions that differ
from the others', a line in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clma.cohorting.algorithm3 import group_by_signed_ks
from clma.cohorting.answers import triage_by_flag_and_choice
from clma.cohorting.cfl import split_in_two, triage_whole_cohorts
from clma.cohorting.choice import triage_by_choice
from clma.cohorting.contract import GroupFunction
from clma.cohorting.cosine import group_by_direction
from clma.cohorting.feddrift import group_together, triage_by_loss, triage_by_loss_eagerly
from clma.cohorting.singletons import group_one_each
from clma.config import FederationConfig
from clma.drift.quarantine import Triage, quarantine_clients
from clma.records import FederationState
from clma.rows import SealedRound

__all__ = ["METHODS", "Method", "triage_clients"]

TriageFunction = Callable[[FederationState, SealedRound, FederationConfig], Triage]


@dataclass(frozen=True, slots=True)
class Method:
    """The functions of one method.

    Parameters
    ----------
    group : callable or None
        Groups the clients that triage set apart; None where it sets nobody apart.
    triage : callable
        Sorts the accepted clients: who votes where, who is set apart, which cohorts merge.
    keeps_origin : bool
        The largest group stays in the cohort that it was set apart from.
    """

    group: GroupFunction | None = None
    triage: TriageFunction = quarantine_clients
    keeps_origin: bool = False


METHODS: Mapping[str, Method] = {
    "cosine": Method(group_by_direction, triage_by_flag_and_choice),
    "signed_ks": Method(group_by_signed_ks),
    "singletons": Method(group_one_each),
    "single": Method(),
    "given": Method(),
    "local": Method(),
    "pacfl": Method(),
    "fecfl": Method(),
    "ifca": Method(triage=triage_by_choice),
    "feddrift": Method(group_one_each, triage_by_loss),
    "feddrift_eager": Method(group_together, triage_by_loss_eagerly),
    "cfl": Method(split_in_two, triage_whole_cohorts, keeps_origin=True),
}
"""By the name in ``cohorting.method``."""


def triage_clients(state: FederationState, sealed: SealedRound, config: FederationConfig) -> Triage:
    """Sort the accepted clients of a round as the configured method does.

    Parameters
    ----------
    state : FederationState
        Before the round. Not modified.
    sealed : SealedRound
    config : FederationConfig

    Returns
    -------
    Triage
        Equal for any order of the sealed updates.
    """
    return METHODS[config.cohorting.method].triage(state, sealed, config)
