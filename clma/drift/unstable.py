"""Clients that change cohort so often that following them helps nobody.

A client whose data go back and forth founds, leaves and rejoins cohorts faster than any of them can
learn from it, and each of its moves costs the members it leaves and the members it joins. It is
parked for some rounds in the cohort that it was in longest, is served that cohort's model and votes
nowhere. On its last night there its update is compared with the known cohorts, as a newcomer's is:
its detector has got used to whatever its losses were.

Examples
--------
>>> longest_stay((Move(4, "c0"), Move(6, "c1"), Move(9, "c0")), "c1", 10)
'c0'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from clma.config import FederationConfig
from clma.methods import METHODS
from clma.records import (
    ClientState,
    ClientStatus,
    Cohort,
    CohortStatus,
    Move,
    cohort_number,
)

__all__ = ["is_resting", "longest_stay", "park", "remember_move"]


def is_resting(client: ClientState, round_num: int) -> bool:
    """Tell whether a client is parked in a round."""
    return client.status is ClientStatus.UNSTABLE and round_num <= client.rests_until


def remember_move(
    moves: Sequence[Move], left: str, round_num: int, config: FederationConfig
) -> tuple[Move, ...]:
    """Return the moves of the newest rounds, with one more; nothing where nobody is parked."""
    traits = METHODS[config.cohorting.method]
    if not config.drift.unstable_moves or not traits.follows_flags or traits.offers_all:
        return ()
    oldest = round_num - config.drift.unstable_window
    return (*(m for m in moves if m.round_num > oldest), Move(round_num, left))


def park(
    client: ClientState,
    round_num: int,
    cohorts: Mapping[str, Cohort],
    config: FederationConfig,
) -> ClientState:
    """Return a client as it is, or parked if it moved too often.

    Parameters
    ----------
    client : ClientState
        After the moves of the round.
    round_num : int
        The round that is decided.
    cohorts : mapping of cohort id to Cohort
        After the round.
    config : FederationConfig
    """
    if len(client.moves) <= config.drift.unstable_moves or client.status is ClientStatus.UNSTABLE:
        return client
    longest = longest_stay(client.moves, client.cohort_id, round_num)
    merged = cohorts[longest].status is CohortStatus.MERGED
    target = client.cohort_id if merged else longest
    digest = cohorts[target].model_digest
    return dataclasses.replace(
        client,
        cohort_id=target,
        status=ClientStatus.UNSTABLE,
        serving_digest=digest,
        serving_since=client.serving_since if digest == client.serving_digest else round_num + 1,
        origin_cohort=None,
        unconfirmed=False,
        moves=(),
        rests_until=round_num + config.drift.unstable_rest,
    )


def longest_stay(moves: Sequence[Move], cohort_id: str, round_num: int) -> str:
    """Return the cohort in which a client spent most rounds since the first of some moves.

    Parameters
    ----------
    moves : sequence of Move
        By rising round.
    cohort_id : str
        Where it is now.
    round_num : int
        The round up to which the last stay counts.

    Returns
    -------
    str
        Of equals the oldest cohort. How long it had been in the first one is not known and counts
        as one round.
    """
    stays: dict[str, int] = {}
    begun = moves[0].round_num - 1 if moves else round_num
    for move in moves:
        stays[move.left] = stays.get(move.left, 0) + move.round_num - begun
        begun = move.round_num
    stays[cohort_id] = stays.get(cohort_id, 0) + round_num - begun
    return min(stays, key=lambda c: (-stays[c], cohort_number(c)))
