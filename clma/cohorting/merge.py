"""Cohorts whose models went the same way become one again.

A false split leaves two cohorts where one would learn from more clients; so do two families that
end at one concept. The server sees it from the models alone: measured from the model at which their
lines parted, both went the same way. Models that learned the same need not lie in one valley, so
they are not averaged: the larger part's model stays, and the other part's clients move over, as
after a recall.

Examples
--------
>>> gram = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.8], [0.0, 0.8, 1.0]])
>>> cosine_from(gram, 0, 1, 2)
0.8
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from clma.config import FederationConfig
from clma.drift.quarantine import Triage
from clma.methods import METHODS
from clma.parameters.moves import EVIDENCE_DIGITS, STILL
from clma.records import ClientStatus, FederationState, cohort_number
from clma.rows import SealedRound

__all__ = [
    "Alike",
    "CohortPair",
    "cosine_from",
    "merges_cohorts",
    "pairs_to_compare",
    "with_merges",
]


@dataclasses.dataclass(frozen=True, slots=True)
class CohortPair:
    """Two live cohorts, the older one first, and the model at which their lines parted."""

    older: str
    younger: str
    parted_digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Alike:
    """A pair, with the cosine between the ways that their models went."""

    pair: CohortPair
    cosine: float


def merges_cohorts(config: FederationConfig) -> bool:
    """Tell whether cohorts are compared at all: methods that measure losses know better."""
    traits = METHODS[config.cohorting.method]
    return config.cohorting.merge and traits.follows_flags and not traits.offers_all


def pairs_to_compare(
    state: FederationState, sealed: SealedRound, triage: Triage
) -> tuple[CohortPair, ...]:
    """Return the pairs of cohorts that may become one, by their numbers.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    triage : Triage

    Notes
    -----
    Only cohorts that vote today. The younger one has no client in quarantine or on probation, and
    none goes home to it: where those end is not known yet, and their origin must not be gone.
    """
    apart = {*triage.quarantined, *triage.newcomers}
    unsettled = {
        client.cohort_id
        for client in state.clients.values()
        if client.status is ClientStatus.QUARANTINED or client.client_id in apart
    } | set(triage.returning.values())
    examples = {u.client_id: u.n_examples for u in sealed.updates}
    voting = [c for c, voters in triage.voters.items() if any(examples[v] for v in voters)]
    ripe = sorted(voting, key=cohort_number)
    pairs = []
    for place, older in enumerate(ripe):
        for younger in (c for c in ripe[place + 1 :] if c not in unsettled):
            parted = _parted_digest(state, older, younger)
            if parted is not None:
                pairs.append(CohortPair(older, younger, parted))
    return tuple(pairs)


def cosine_from(gram: NDArray[np.float64], parted: int, older: int, younger: int) -> float:
    """Return the cosine between the ways of two models from a third one.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of models, measured from any one model.
    parted, older, younger : int
        Rows of `gram`.

    Returns
    -------
    float in [-1, 1]
        0 where a model did not move.
    """
    turn = np.zeros((2, len(gram)))
    turn[0, older] = turn[1, younger] = 1.0
    turn[:, parted] -= 1.0
    ways = turn @ gram @ turn.T
    lengths = np.sqrt(np.maximum(np.diag(ways), 0.0))
    if lengths.min() < STILL:
        return 0.0
    cosine = float(np.clip(ways[0, 1] / (lengths[0] * lengths[1]), -1.0, 1.0))
    return round(cosine, EVIDENCE_DIGITS)


def with_merges(
    state: FederationState,
    sealed: SealedRound,
    triage: Triage,
    compared: Sequence[Alike],
    config: FederationConfig,
) -> Triage:
    """Merge the cohorts that were alike for some rounds in a row.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    triage : Triage
        Not modified.
    compared : sequence of Alike
        All pairs of today. A cohort that is in none keeps the streak that it has.
    config : FederationConfig

    Returns
    -------
    Triage
        The merged cohort keeps the lowest number. Only the part with most examples votes, of equals
        the oldest: the others trained another model.
    """
    streaks = _streaks(state, compared, config.cohorting.merge_cosine)
    ripe = {
        cohort_id: older
        for cohort_id, (older, n_rounds) in streaks.items()
        if older is not None and n_rounds >= config.cohorting.merge_rounds
    }
    merged = {cohort_id: _end_of(cohort_id, ripe) for cohort_id in ripe}
    examples = {u.client_id: u.n_examples for u in sealed.updates}
    voters = {c: v for c, v in triage.voters.items() if c not in merged}
    moving, notes = dict(triage.moving), dict(triage.notes)
    for target in sorted(set(merged.values()), key=cohort_number):
        parts = [target, *sorted((c for c in merged if merged[c] == target), key=cohort_number)]
        keeper = max(parts, key=lambda c: sum(examples[v] for v in triage.voters[c]))
        voters[target] = triage.voters[keeper]
        for client_id, note in _notes_of(state, triage, parts, keeper):
            notes[client_id] = f"{notes[client_id]}; {note}" if client_id in notes else note
    moving |= {
        client_id: merged[state.clients[client_id].cohort_id]
        for client_id in sorted(examples)
        if state.clients[client_id].cohort_id in merged and client_id not in triage.returning
    }
    return dataclasses.replace(
        triage,
        voters=dict(sorted(voters.items())),
        moving=dict(sorted(moving.items())),
        merged={**triage.merged, **merged},
        alike={c: streak for c, streak in streaks.items() if c not in merged},
        notes=notes,
    )


def _streaks(
    state: FederationState, compared: Sequence[Alike], least: float
) -> dict[str, tuple[str | None, int]]:
    """Return which older cohort each younger one is most like, and for how many rounds it was."""
    best: dict[str, Alike] = {}
    for found in compared:
        known = best.get(found.pair.younger)
        if known is None or found.cosine > known.cosine:
            best[found.pair.younger] = found
    streaks: dict[str, tuple[str | None, int]] = {}
    for cohort_id, found in sorted(best.items(), key=lambda item: cohort_number(item[0])):
        cohort, older = state.cohorts[cohort_id], found.pair.older
        again = cohort.alike_rounds + 1 if cohort.alike_to == older else 1
        streaks[cohort_id] = (older, again) if found.cosine >= least else (None, 0)
    return streaks


def _end_of(cohort_id: str, merged: Mapping[str, str]) -> str:
    while cohort_id in merged:
        cohort_id = merged[cohort_id]
    return cohort_id


def _notes_of(
    state: FederationState, triage: Triage, parts: Sequence[str], keeper: str
) -> Iterator[tuple[str, str]]:
    target = parts[0]
    for part in parts:
        became = "" if part == target else f"cohort {part} became part of {target}"
        silent = "" if part == keeper else f"its update votes nowhere: {keeper} has more examples"
        for client_id in triage.voters[part]:
            note = ", ".join(text for text in (became, silent) if text)
            if note and client_id in state.clients:
                yield client_id, note


def _parted_digest(state: FederationState, older: str, younger: str) -> str | None:
    """Return the model that the first of two lines to leave was sent when it left."""
    lines = [_line(state, older), _line(state, younger)]
    shared = next((c for c in lines[0] if c in lines[1]), None)
    if shared is None:
        return None
    left = [line[line.index(shared) - 1] for line in lines if line[0] != shared]
    first = min(left, key=lambda c: (state.cohorts[c].born_round, cohort_number(c)))
    return state.cohorts[first].origin_digest


def _line(state: FederationState, cohort_id: str) -> list[str]:
    """Return a cohort and those that it descends from, nearest first."""
    line = [cohort_id]
    while (parent := state.cohorts[line[-1]].parent) is not None:
        line.append(parent)
    return line
