"""The rows of the five tables, which are the decision of a round, and a round's sealed inputs.

What is logged, stored and explained is what was decided: there is no second account of it.

Examples
--------
>>> UpdateRow("plant-01", Verdict.MISSING, "MISSED_DEADLINE").digest is None
True
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clma.records import ClientStatus, CohortStatus, SealedUpdate

__all__ = [
    "AssignmentRow",
    "CohortRow",
    "CohortingRow",
    "DriftRow",
    "Gate",
    "RoundDecision",
    "SealedRound",
    "UpdateRow",
    "Verdict",
]


class Verdict(StrEnum):
    """What became of a submission."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    LATE = "late"
    MISSING = "missing"


class Gate(StrEnum):
    """What became of a cohort's new model."""

    PROMOTED = "promoted"
    HELD = "held"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """Row of ``updates.parquet``: one submission, or one client that sent nothing."""

    client_id: str
    verdict: Verdict
    reason: str | None = None
    detail: str | None = None
    received_at: dt.datetime | None = None
    digest: str | None = None
    n_examples: int | None = None
    loss: float | None = None
    drift_flag: bool | None = None
    base_digest: str | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SealedRound:
    """Fixed inputs of a round; everything after it is a pure function of this record.

    Parameters
    ----------
    round_num : int
    updates : tuple of SealedUpdate
        Accepted ones, sorted by client id.
    rows : tuple of UpdateRow
        All submissions, accepted or not, sorted by client id.
    """

    round_num: int
    updates: tuple[SealedUpdate, ...]
    rows: tuple[UpdateRow, ...]


@dataclass(frozen=True, slots=True)
class DriftRow:
    """Row of ``drift.parquet``: one accepted client; losses are null unless they are shared.

    `voted_in` is the cohort whose model its update went into, null for none; `scores` the loss of
    every cohort's model that it measured, where the method asks for that.
    """

    client_id: str
    cohort_before: str
    drift_flag: bool
    loss: float | None = None
    loss_previous: float | None = None
    threshold: float | None = None
    update_norm: float | None = None
    server_check: str = "ok"
    detail: str | None = None
    voted_in: str | None = None
    scores: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CohortingRow:
    """Row of ``cohorting.parquet``: one quarantined client and why it went where it went.

    `recall_witness` is what `recall_score` was taken from: the ``way`` to the cohort's model, or
    the update that founded it (``birth``); null where there is no score.
    """

    client_id: str
    origin_cohort: str
    ks_statistic: float | None
    direction: str
    group: int
    silhouette: float | None
    recall_cohort: str | None
    recall_score: float | None
    decision: str
    nearest: tuple[str, ...] = ()
    top_layers: tuple[tuple[str, float], ...] = ()
    recall_witness: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentRow:
    """Row of ``assignments.parquet``: one registered client after the round."""

    client_id: str
    cohort_before: str
    cohort_after: str
    status: ClientStatus
    serving_digest: str
    serving_since: int


@dataclass(frozen=True, slots=True)
class CohortRow:
    """Row of ``cohorts.parquet``: one cohort after the round."""

    cohort_id: str
    parent: str | None
    born_round: int
    status: CohortStatus
    n_members: int
    n_updates: int
    n_examples: int
    model_digest: str
    previous_digest: str | None
    gate: Gate
    gate_detail: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundDecision:
    """What a round decided, with the evidence: the rows of the five tables.

    Parameters
    ----------
    round_num : int
    updates, drift, cohorting, assignments, cohorts : tuple of rows
        Sorted by id.
    consensus_digest : str or None
        Average over all accepted updates, where the configuration keeps it.
    """

    round_num: int
    updates: tuple[UpdateRow, ...]
    drift: tuple[DriftRow, ...]
    cohorting: tuple[CohortingRow, ...]
    assignments: tuple[AssignmentRow, ...]
    cohorts: tuple[CohortRow, ...]
    consensus_digest: str | None = None
