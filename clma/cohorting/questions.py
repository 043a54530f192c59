"""What a client is asked beside its flag: which other cohorts' models it compares with its own.

A federation buys as much information as its policy lets it. With a flag alone, a client that was
moved by mistake stays where it is. One bit more (``drift.confirm``), and it goes home. Where the
choice of a model may be known (``cohorting.choice``), a client compares other cohorts' models with
its own on fresh data, before it trains, and says by what it trains which one is better.

With ``choice = "one"`` a client downloads at most one other model a night:

1. the night after a move, the one of the cohort that it left;
2. if another one was no worse the last time, that one again;
3. for ``choice_rounds`` nights after a move, a cohort it has not compared yet, the largest first;
4. every ``choice_every`` nights, the one of the largest cohort, or of a larger parent.

With ``choice = "all"`` it gets the models of all cohorts as soon as it raises its flag, and in the
nights of 1 and 3 those of all larger ones.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

from clma.config import FederationConfig
from clma.records import (
    ClientState,
    ClientStatus,
    Cohort,
    CohortStatus,
    FederationState,
    cohort_number,
)

__all__ = ["Question", "compared_cohorts", "is_larger", "moved_lately", "question_for"]


@dataclass(frozen=True, slots=True)
class Question:
    """A cohort that a client is asked about: is its model bad here? The answer is the confirm bit.

    Parameters
    ----------
    cohort_id : str
    takes : bool
        If it is not, the client trains it.
    """

    cohort_id: str
    takes: bool = False


def question_for(
    state: FederationState, client: ClientState, config: FederationConfig
) -> Question | None:
    """Return which cohort a client is asked about; None: about none.

    Parameters
    ----------
    state : FederationState
        With the round open.
    client : ClientState
    config : FederationConfig
    """
    home = client.way_home()
    asked_home = config.drift.confirm and home is not None and _lives(state, home)
    if config.cohorting.choice == "none":
        return Question(home) if asked_home and home is not None else None
    quarantined = client.status is ClientStatus.QUARANTINED
    if asked_home and home is not None and (quarantined or is_larger(state, home, client)):
        return Question(home, takes=True)
    if quarantined:
        return None
    leaning = client.choices.leaning
    if leaning is not None and _lives(state, leaning) and leaning != client.cohort_id:
        return Question(leaning, takes=True)
    recent = moved_lately(state, client, config)
    if not (recent or _is_due(state, client, config)):
        return None
    compared = _not_compared(state, client, within=None if recent else _pause(config))
    if not (recent and config.cohorting.choice == "one"):
        compared = [c for c in compared if is_larger(state, c, client)]
    return Question(compared[0]) if compared else None


def compared_cohorts(
    state: FederationState, client: ClientState, config: FederationConfig, *, drifted: bool = False
) -> tuple[Cohort, ...]:
    """Return whose models a client compares with its own beside the one in question.

    Parameters
    ----------
    state : FederationState
        With the round open.
    client : ClientState
    config : FederationConfig
    drifted : bool
        It raised its flag.

    Returns
    -------
    tuple of Cohort
        The larger ones first, of equally large ones the older: of equally good models the client
        takes the first.

    Notes
    -----
    A client that is drifting, or for which nothing was found yet, compares all that are older than
    a night, those at rest too.
    One that was moved lately did so then; what it is now to find out is whether its new cohort is
    needed, so it compares the larger ones. It would find small ones good that it was a member of:
    their models know its data by heart.
    """
    if config.cohorting.choice != "all":
        return ()
    sizes = _sizes(state)
    known = [c for c in state.cohorts.values() if c.status is not CohortStatus.MERGED]
    known.sort(key=lambda c: -sizes[c.cohort_id])
    if drifted or client.status is ClientStatus.QUARANTINED:
        # Those of last night's false alarms end in this one.
        return tuple(c for c in known if c.parent is None or c.born_round < state.round_num - 1)
    if not moved_lately(state, client, config):
        return ()
    return tuple(c for c in known if is_larger(state, c.cohort_id, client))


def moved_lately(state: FederationState, client: ClientState, config: FederationConfig) -> bool:
    """Tell whether a client's move is so new that its place is still in doubt."""
    if client.moved_round is None:
        return False
    return state.round_num - client.moved_round <= config.cohorting.choice_rounds


def is_larger(state: FederationState, cohort_id: str, client: ClientState) -> bool:
    """Tell whether a cohort has more members than the client's own, or as many and is older."""
    sizes = _sizes(state)
    other, own = state.cohorts[cohort_id], state.cohorts[client.cohort_id]
    return (sizes[other.cohort_id], -cohort_number(other.cohort_id)) > (
        sizes[own.cohort_id],
        -cohort_number(own.cohort_id),
    )


def _pause(config: FederationConfig) -> int:
    return 2 * config.cohorting.choice_every


def _is_due(state: FederationState, client: ClientState, config: FederationConfig) -> bool:
    # Spread over the nights by name, so that a client's turn depends on nobody else.
    every = config.cohorting.choice_every
    return every > 0 and (zlib.crc32(client.client_id.encode()) + state.round_num) % every == 0


def _not_compared(state: FederationState, client: ClientState, *, within: int | None) -> list[str]:
    """Return the cohorts not refused within so many rounds, the larger first, then the newer."""
    sizes = _sizes(state)
    refused = dict(client.choices.refused)
    open_to = [
        c
        for c in state.cohorts.values()
        if c.status is not CohortStatus.MERGED
        and c.cohort_id != client.cohort_id
        and not _refused_lately(c, refused, state.round_num, within)
    ]
    by_size = sorted(open_to, key=lambda c: (-sizes[c.cohort_id], -c.born_round))
    return [c.cohort_id for c in by_size]


def _refused_lately(
    cohort: Cohort, refused: dict[str, int], round_num: int, within: int | None
) -> bool:
    if cohort.cohort_id not in refused:
        return False
    # The model of a cohort at rest is the one that was refused.
    at_rest = cohort.status is CohortStatus.DORMANT
    return within is None or at_rest or round_num - refused[cohort.cohort_id] < within


def _sizes(state: FederationState) -> Counter[str]:
    out = {ClientStatus.FORGOTTEN, ClientStatus.QUARANTINED}
    return Counter(c.cohort_id for c in state.clients.values() if c.status not in out)


def _lives(state: FederationState, cohort_id: str) -> bool:
    known = state.cohorts.get(cohort_id)
    return known is not None and known.status is not CohortStatus.MERGED
