"""Form groups of quarantined clients, with the evidence for every one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.clustering import Clustering
from clma.cohorting.contract import (
    CohortingUnit,
    Evidence,
    Group,
    Grouping,
)
from clma.cohorting.methods import METHODS
from clma.cohorting.recall import RecallScore, score_candidates
from clma.cohorting.singletons import group_one_each
from clma.config import CohortingConfig
from clma.errors import InvalidConfigError
from clma.parameters.moves import EVIDENCE_DIGITS, STILL, mean_norm, signed_means
from clma.rows import CohortingRow

__all__ = ["form_groups"]

N_NEAREST = 3


def form_groups(unit: CohortingUnit, evidence: Evidence, config: CohortingConfig) -> Grouping:
    """Group a unit's clients and look for known cohorts that the groups belong to.

    Parameters
    ----------
    unit : CohortingUnit
    evidence : Evidence
        What the pass over its files came to.
    config : CohortingConfig

    Returns
    -------
    Grouping
        Equal for equal input: nothing in it depends on the order of arrival, on threads or on time.

    Notes
    -----
    A client whose update is shorter than 1e-12 flagged without moving: it is compared with nobody
    and stays in its cohort. So does a newcomer that points to no known cohort.
    """
    keeps_origin = METHODS[config.method].keeps_origin
    # Whoever was set apart with its whole cohort votes there, whether it moved or not.
    least = 0.0 if keeps_origin else STILL
    moved = np.flatnonzero(evidence.movements.norms[: len(unit.members)] >= least)
    known = _recall_one_by_one(unit, evidence, config, moved) if config.recall_first else {}
    rest = np.array([row for row in moved if int(row) not in known], dtype=np.intp)
    clustering = _cluster(unit, evidence, config, rest)
    label_of = _labels(rest, clustering, known)
    rows_of_groups = [
        [int(row) for row, label in zip(rest, clustering.labels, strict=True) if label == g]
        for g in range(max(clustering.labels, default=-1) + 1)
    ]
    groups = tuple(
        replace(group, unclear=clustering.unclear and len(rows) == 1)
        for rows in rows_of_groups
        for group in _recall(unit, evidence, config, rows)
    )
    groups += tuple(known.values())
    if keeps_origin:
        groups = _with_one_staying(groups)
    found = [g for g in groups if g.recall_cohort is not None or not unit.newcomers]
    placed = {client_id for group in found for client_id in group.members}
    still = tuple(m.client_id for m in unit.members if m.client_id not in placed)
    return Grouping(
        unit_id=unit.unit_id,
        reference=unit.reference,
        groups=tuple(sorted(found, key=lambda group: min(group.members))),
        still=still,
        mean_norm=_mean_norm(unit, evidence),
        rows=_evidence_rows(unit, evidence, clustering, groups, label_of),
    )


def _cluster(
    unit: CohortingUnit, evidence: Evidence, config: CohortingConfig, moved: NDArray[np.intp]
) -> Clustering:
    if moved.size == 0:
        return Clustering(())
    part = CohortingUnit(
        unit.unit_id,
        unit.round_num,
        tuple(unit.members[i] for i in moved),
        unit.reference,
        unit.candidates,
        unit.seed,
        unit.largest_mean_norm,
    )
    square = np.ix_(moved, moved)
    seen = Evidence(
        evidence.movements,
        evidence.distances[square],
        evidence.ks_statistics[moved],
        None if evidence.raw_gram is None else evidence.raw_gram[square],
    )
    group = group_one_each if unit.newcomers else METHODS[config.method].group
    if group is None:  # such a method sets nobody apart
        raise InvalidConfigError(
            f"method {config.method!r} groups nobody, got {moved.size} clients"
        )
    return group(part, seen, config)


def _with_one_staying(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Let the largest group keep the cohort that all come from; of equals the first."""
    by_first = sorted(groups, key=lambda group: min(group.members))
    largest = max(by_first, key=lambda group: len(group.members))
    return tuple(replace(g, stays=g is largest) for g in groups)


def _mean_norm(unit: CohortingUnit, evidence: Evidence) -> float:
    n = len(unit.members)
    gram = evidence.movements.gram[:n, :n]
    return round(mean_norm(gram, [m.n_examples for m in unit.members]), EVIDENCE_DIGITS)


def _recall(
    unit: CohortingUnit, evidence: Evidence, config: CohortingConfig, rows: Sequence[int]
) -> tuple[Group, ...]:
    """Return the group with the cohort it is recalled to; apart, members that are barred there."""
    members = [unit.members[i] for i in rows]
    ids = tuple(m.client_id for m in members)
    scores = score_candidates(unit, evidence, rows, output_weight=config.output_weight)
    open_to = [s for s in scores if not all(m.barred_cohort == s.cohort_id for m in members)]
    if not open_to:
        return (Group(ids),)
    best = max(open_to, key=lambda scored: scored.score)  # the older cohort on ties
    # One that they are barred from is a rival all the same: they may be on the way back there.
    rivals = scores if config.recall_margin > 0 else open_to
    if not _fits(best, rivals, config):
        return (Group(ids, None, best.score, recall_witness=best.witness),)
    barred = [i for i in rows if unit.members[i].barred_cohort == best.cohort_id]
    free = tuple(m.client_id for m in members if m.barred_cohort != best.cohort_id)
    recalled = Group(free, best.cohort_id, best.score, recall_witness=best.witness)
    return (recalled, *_recall(unit, evidence, config, barred)) if barred else (recalled,)


def _fits(best: RecallScore, scores: Sequence[RecallScore], config: CohortingConfig) -> bool:
    others = [scored.score for scored in scores if scored is not best]
    margin = best.score - max(others, default=-np.inf)
    return best.score >= config.recall_threshold and margin >= config.recall_margin


def _recall_one_by_one(
    unit: CohortingUnit, evidence: Evidence, config: CohortingConfig, moved: NDArray[np.intp]
) -> dict[int, Group]:
    """Return, by row, the clients that a known cohort fits."""
    known = {}
    for row in map(int, moved):
        member = unit.members[row]
        scores = score_candidates(unit, evidence, [row], output_weight=config.output_weight)
        best = max(scores, key=lambda scored: scored.score, default=None)
        if best is None or best.cohort_id == member.barred_cohort:
            continue
        if _fits(best, scores, config):
            ids = (member.client_id,)
            known[row] = Group(ids, best.cohort_id, best.score, recall_witness=best.witness)
    return known


def _labels(
    rest: NDArray[np.intp], clustering: Clustering, known: Mapping[int, Group]
) -> dict[int, int]:
    """Number the groups of all rows that moved; last, the cohorts that some were recalled to."""
    labels = {int(row): label for row, label in zip(rest, clustering.labels, strict=True)}
    first = max(clustering.labels, default=-1) + 1
    cohorts = list(dict.fromkeys(group.recall_cohort for group in known.values()))
    return labels | {row: first + cohorts.index(g.recall_cohort) for row, g in known.items()}


def _evidence_rows(
    unit: CohortingUnit,
    evidence: Evidence,
    clustering: Clustering,
    groups: Sequence[Group],
    label_of: Mapping[int, int],
) -> tuple[CohortingRow, ...]:
    directions = signed_means(evidence.movements)
    group_of = {client_id: group for group in groups for client_id in group.members}
    rows = []
    for index, member in enumerate(unit.members):
        label = label_of.get(index, -1)
        group = group_of.get(member.client_id, Group((member.client_id,)))
        recalled = group.recall_cohort is not None
        rows.append(
            CohortingRow(
                client_id=member.client_id,
                origin_cohort=member.origin_cohort,
                ks_statistic=_rounded(float(evidence.ks_statistics[index])),
                direction=directions[index] if label >= 0 else "none",
                group=label,
                silhouette=_rounded(clustering.silhouette),
                recall_cohort=group.recall_cohort,
                recall_score=_rounded(group.recall_score),
                decision="kept"
                if label < 0 or group.stays or (unit.newcomers and not recalled)
                else "recalled"
                if recalled
                else "created",
                nearest=_nearest(unit, evidence.distances, index),
                top_layers=tuple(
                    (name, round(share, EVIDENCE_DIGITS))
                    for name, share in evidence.movements.top_layers(index)
                ),
                recall_witness=group.recall_witness,
            )
        )
    return tuple(rows)


def _nearest(unit: CohortingUnit, distances: NDArray[np.float64], index: int) -> tuple[str, ...]:
    row = distances[index].round(EVIDENCE_DIGITS)
    row[index] = np.inf
    nearest = []
    for _ in range(min(N_NEAREST, len(unit.members) - 1)):
        nearest.append(int(np.argmin(row)))  # the smaller client id on ties
        row[nearest[-1]] = np.inf
    return tuple(unit.members[i].client_id for i in nearest)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, EVIDENCE_DIGITS)
