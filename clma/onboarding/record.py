"""The record of how cohorts were formed: canonical JSON and back.

Distances of single pairs are left out: they follow from the signatures, which are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from clma.errors import DamagedStoreError
from clma.ledger.entry import canonical_json
from clma.records import ArtifactRef

if TYPE_CHECKING:  # SciPy comes with it, and plants read no plan.
    from clma.onboarding.plan import CohortPlan

__all__ = [
    "CohortRecord",
    "PlacedClient",
    "parse_record",
    "record_bytes",
    "record_of",
    "record_without",
]

N_DIGITS = 6


@dataclass(frozen=True, slots=True)
class PlacedClient:
    """A client of a plan.

    Parameters
    ----------
    cohort_id, before : str
        Where it goes and where it was.
    signature : ArtifactRef
        What it was placed by.
    distances : mapping of cohort id to float
        Mean distance to the members of each cohort, itself left out.
    """

    cohort_id: str
    before: str
    signature: ArtifactRef
    distances: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CohortRecord:
    """How cohorts were formed.

    Parameters
    ----------
    federation : str
    round_num : int
        The earliest that could open with them.
    encoder : str
    n_features : int
    settings : mapping of str to value
        The section ``[onboarding]`` that was in force.
    clients : mapping of client id to PlacedClient
    parents : mapping of cohort id to cohort id
        Whose model a new cohort starts from.
    missing : tuple of client id
    refused : mapping of client id to str
    rule : str
        What chose the number of cohorts.
    variation : float
        Coefficient of variation of the distances.
    window : (int, int)
    silhouettes : tuple of (int, float)
    warning : str or None
    schema : int
    """

    federation: str
    round_num: int
    encoder: str
    n_features: int
    settings: Mapping[str, Any]
    clients: Mapping[str, PlacedClient]
    parents: Mapping[str, str]
    missing: tuple[str, ...]
    refused: Mapping[str, str]
    rule: str
    variation: float
    window: tuple[int, int]
    silhouettes: tuple[tuple[int, float], ...]
    warning: str | None = None
    schema: int = field(default=1)


_RECORD = TypeAdapter(CohortRecord)


def record_of(plan: CohortPlan) -> CohortRecord:
    """Return what is written down of a plan."""
    choice, found = plan.onboarding.choice, plan.collected.found
    encoder, n_features = next(iter(found.values())).space
    distances = _distances_to_cohorts(plan)
    return CohortRecord(
        federation=plan.federation,
        round_num=plan.round_num,
        encoder=encoder,
        n_features=n_features,
        settings=plan.config.onboarding.model_dump(mode="json"),
        clients={
            client_id: PlacedClient(
                plan.after[client_id],
                plan.before[client_id],
                found[client_id].ref,
                distances[client_id],
            )
            for client_id in plan.onboarding.client_ids
        },
        parents=plan.parents,
        missing=plan.collected.missing,
        refused=plan.collected.refused,
        rule=choice.rule,
        variation=round(choice.variation, N_DIGITS),
        window=choice.window,
        silhouettes=tuple((k, round(s, N_DIGITS)) for k, s in choice.silhouettes),
        warning=choice.warning,
    )


def record_bytes(record: CohortRecord) -> bytes:
    """Write a record; equal records give equal bytes."""
    return canonical_json(_RECORD.dump_python(record, mode="json"))


def parse_record(data: bytes) -> CohortRecord:
    """Read a record; DamagedStoreError if it is none."""
    try:
        return _RECORD.validate_json(data)
    except ValidationError as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedStoreError(f"not a record of formed cohorts: {first_line}") from None


def record_without(record: CohortRecord, client_id: str) -> CohortRecord:
    """Return the record as if a client had not been there; the cohorts stay as they are."""
    return replace(
        record,
        clients={c: placed for c, placed in record.clients.items() if c != client_id},
        missing=tuple(c for c in record.missing if c != client_id),
        refused={c: why for c, why in record.refused.items() if c != client_id},
    )


def _distances_to_cohorts(plan: CohortPlan) -> dict[str, dict[str, float]]:
    ids, distances = plan.onboarding.client_ids, plan.onboarding.found.distances
    members = np.array([[plan.after[c] == cohort for c in ids] for cohort in plan.cohorts], float)
    sums = distances @ members.T
    counts = members.sum(axis=1) - members.T
    means = sums / np.maximum(counts, 1)
    return {
        client_id: {
            cohort: round(float(means[row, k]), N_DIGITS)
            for k, cohort in enumerate(plan.cohorts)
            if counts[row, k] > 0
        }
        for row, client_id in enumerate(ids)
    }
