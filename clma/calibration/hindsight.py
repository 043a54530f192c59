"""What later nights say of a night's decisions: who belonged together, who was recalled rightly.

The truth is not recorded. What is: a cohort's members train one model, and those that belong
together pull it the same way, those that do not pull it apart. So whoever was put together shows
within a few nights whether that was right. Whoever was put apart shows nothing, unless the two meet
again; that they stayed apart is counted as right, and as not seen.

Examples
--------
>>> together = {"a": "c1", "b": "c1"}
>>> nights = {r: Night(r, together, compared=(("a", "b"),) * (r == 3)) for r in (3, 4, 5)}
>>> look_back(nights, {4: {("a", "b"): -0.4}, 5: {("a", "b"): -0.6}}).pairs
(Pair(round_num=3, first='a', second='b', alike=False, seen=True),)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from clma.calibration.measure import Likeness
from clma.calibration.nights import Night
from clma.rows import CohortingRow

__all__ = ["HORIZON", "Hindsight", "Pair", "Recall", "look_back"]

HORIZON = 3
"""Nights after a decision that judge it."""

UNCLEAR = 0.05
"""A mean likeness nearer to 0 than this says nothing: chance and unequal classes make as much."""

CLEAR = 0.20
"""What one night alone has to show, and what no other night may contradict."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two clients that were compared in a round, and whether they belong together.

    `seen` is False where the only witness is that they were put apart and stayed so.
    """

    round_num: int
    first: str
    second: str
    alike: bool
    seen: bool = True


@dataclass(frozen=True, slots=True)
class Recall:
    """A client that was recalled to a cohort in a round, or to none, and whether that was right.

    `seen` is False where the only witness is that it stayed in the cohort that it founded.
    """

    round_num: int
    client_id: str
    cohort_id: str | None
    right: bool
    seen: bool = True


@dataclass(frozen=True, slots=True)
class Hindsight:
    """All that later nights say.

    Parameters
    ----------
    pairs : tuple of Pair
    recalls : tuple of Recall
    n_unclear : int
        Pairs of which later nights say nothing, or not yet enough.
    n_false_alarms : int
        Pairs with a client that went home: it had not drifted at all.
    """

    pairs: tuple[Pair, ...] = ()
    recalls: tuple[Recall, ...] = ()
    n_unclear: int = 0
    n_false_alarms: int = 0


def look_back(
    nights: Mapping[int, Night], likeness: Mapping[int, Likeness], *, horizon: int = HORIZON
) -> Hindsight:
    """Judge the decisions of all nights by the nights after them.

    Parameters
    ----------
    nights : mapping of round number to Night
        Committed rounds.
    likeness : mapping of round number to mapping of pair to float
        Of clients that trained one model in the round.
    horizon : int >= 1
        Nights after a decision that judge it.
    """
    pairs: list[Pair] = []
    recalls: list[Recall] = []
    n_unclear = n_false_alarms = 0
    for night in nights.values():
        ahead = range(night.round_num + 1, night.round_num + 1 + horizon)
        later = [nights[r] for r in ahead if r in nights]
        for pair in night.compared:
            if _went_home(later, *pair):
                n_false_alarms += 1
                continue
            alike, seen = _pulled_alike(_undisturbed(later, *pair), likeness, [pair]), True
            if alike is None and _stayed_apart(night, later, horizon, pair):
                alike, seen = False, False
            if alike is None:
                n_unclear += 1
            else:
                pairs.append(Pair(night.round_num, *pair, alike, seen))
        for row in night.rows:
            if not _went_home(later, row.client_id):
                recalls += _judged(row, night, later, likeness, horizon)
    return Hindsight(tuple(pairs), tuple(recalls), n_unclear, n_false_alarms)


def _judged(
    row: CohortingRow,
    night: Night,
    later: Sequence[Night],
    likeness: Mapping[int, Likeness],
    horizon: int,
) -> list[Recall]:
    """Judge where one client was sent; an empty list where nothing is known."""
    client_id = row.client_id
    calm = _undisturbed(later, client_id)
    if row.decision == "created":
        stayed = len(calm) == horizon and all(
            n.cohorts.get(client_id) == night.cohorts.get(client_id) for n in calm
        )
        return [Recall(night.round_num, client_id, None, True, seen=False)] if stayed else []
    if row.decision != "recalled":
        return []
    newcomers = {r.client_id for r in night.rows}
    members = [c for c, k in night.cohorts.items() if k == row.recall_cohort and c not in newcomers]
    pairs = [(min(client_id, m), max(client_id, m)) for m in members]
    right = _pulled_alike(calm, likeness, pairs)
    if right is None and later and client_id in later[0].flagged:
        right = False  # the model that it was sent was no better
    return [] if right is None else [Recall(night.round_num, client_id, row.recall_cohort, right)]


def _pulled_alike(
    nights: Sequence[Night], likeness: Mapping[int, Likeness], pairs: Sequence[tuple[str, str]]
) -> bool | None:
    """Tell whether clients pulled their model the same way; None if it is not clear."""
    seen = [
        fmean(values)
        for night in nights
        if (values := [found[p] for found in [likeness.get(night.round_num, {})]
                       for p in pairs if p in found])
    ]  # fmt: skip
    if not seen or (max(seen) >= CLEAR and min(seen) <= -CLEAR):
        return None
    if fmean(seen) <= -(UNCLEAR if len(seen) > 1 else CLEAR):
        return False
    # On the first night all learn what their drifts have in common, whether these are alike or not.
    return True if len(seen) > 1 and fmean(seen) >= UNCLEAR else None


def _undisturbed(later: Sequence[Night], *client_ids: str) -> list[Night]:
    """Return the nights before one of the clients drifted again: then it is another story."""
    calm = []
    for night in later:
        if night.flagged.intersection(client_ids):
            break
        calm.append(night)
    return calm


def _stayed_apart(
    night: Night, later: Sequence[Night], horizon: int, pair: tuple[str, str]
) -> bool:
    calm = _undisturbed(later, *pair)
    apart = [n.together(*pair) is False for n in (night, *calm)]
    return len(calm) == horizon and all(apart)


def _went_home(later: Sequence[Night], *client_ids: str) -> bool:
    return any(night.returned.intersection(client_ids) for night in later)
