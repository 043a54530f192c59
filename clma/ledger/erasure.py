"""Records without a client: what forgetting it leaves of tables, sealed inputs and entries.

All of these are pure and repeat to the byte, so that a forgetting that was killed goes on where it
stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from clma.config import FederationConfig
from clma.ledger.tables import Row
from clma.rows import AssignmentRow, CohortingRow, CohortRow, SealedRound

__all__ = [
    "NewModel",
    "config_without",
    "payload_without",
    "rows_without",
    "sealed_without",
]


@dataclasses.dataclass(frozen=True, slots=True)
class NewModel:
    """A model that was made again without a client.

    Parameters
    ----------
    digest : str
    n_updates, n_examples : int
        What is behind it now.
    """

    digest: str
    n_updates: int
    n_examples: int


def rows_without(
    rows: Sequence[Row], client_id: str, models: Mapping[str, NewModel]
) -> tuple[Row, ...]:
    """Return a table's rows without a client's, and with the models that were made again.

    Parameters
    ----------
    rows : sequence of records
        Of one table. Not modified.
    client_id : str
    models : mapping of digest to NewModel
        Old model to the one that took its place.
    """
    kept = [row for row in rows if getattr(row, "client_id", None) != client_id]
    return tuple(_cleaned(row, client_id, models) for row in kept)


def sealed_without(sealed: SealedRound, client_id: str) -> SealedRound:
    """Return a round's sealed inputs without a client."""
    return dataclasses.replace(
        sealed,
        updates=tuple(u for u in sealed.updates if u.client_id != client_id),
        rows=tuple(r for r in sealed.rows if r.client_id != client_id),
    )


def config_without(config: FederationConfig, client_id: str) -> FederationConfig:
    """Return a configuration whose schedule does not name a client."""
    entries = tuple(
        entry.model_copy(
            update={"labels": {c: v for c, v in entry.labels.items() if c != client_id}}
        )
        for entry in config.cohorting.schedule
    )
    cohorting = config.cohorting.model_copy(update={"schedule": entries})
    return config.model_copy(update={"cohorting": cohorting})


def payload_without(payload: Mapping[str, Any], client_id: str, pseudonym: str) -> dict[str, Any]:
    """Return an entry's payload with a pseudonym for a client's id, and without its keys.

    Only where an id stands: a client may be called like a cohort, a phase or a field.
    """
    cleaned = dict(payload)
    if "clients" in payload:
        cleaned["clients"] = [
            {**client, "client_id": pseudonym} if client["client_id"] == client_id else client
            for client in payload["clients"]
        ]
    if "keys" in payload:
        cleaned["keys"] = {i: keys for i, keys in payload["keys"].items() if i != client_id}
    if "onboarding" in payload:
        evidence = dict(payload["onboarding"])
        for name in evidence.keys() & _BY_CLIENT:
            evidence[name] = {i: v for i, v in evidence[name].items() if i != client_id}
        cleaned["onboarding"] = evidence
    return cleaned


_BY_CLIENT = frozenset({"signatures", "distances", "refused"})
"""Fields of what clients were placed by that are mappings from client ids."""


def _without(labels: Mapping[str, str], client_id: str) -> dict[str, str]:
    return {c: label for c, label in labels.items() if c != client_id}


def _cleaned(row: Row, client_id: str, models: Mapping[str, NewModel]) -> Row:
    if isinstance(row, CohortingRow):
        nearest = tuple(other for other in row.nearest if other != client_id)
        return dataclasses.replace(row, nearest=nearest)
    if isinstance(row, AssignmentRow):
        new = models.get(row.serving_digest)
        return row if new is None else dataclasses.replace(row, serving_digest=new.digest)
    if isinstance(row, CohortRow):
        return _with_new_models(row, models)
    return row


def _with_new_models(row: CohortRow, models: Mapping[str, NewModel]) -> CohortRow:
    previous = models.get(row.previous_digest or "")
    if previous is not None:
        row = dataclasses.replace(row, previous_digest=previous.digest)
    new = models.get(row.model_digest)
    if new is None:
        return row
    row = dataclasses.replace(row, model_digest=new.digest)
    if not row.n_updates:
        return row
    return dataclasses.replace(row, n_updates=new.n_updates, n_examples=new.n_examples)
