"""The committed rounds of a federation and the clients it forgot, as far as they are asked for.

A night publishes its own round, so of a long ledger it reads the end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clma.errors import RoundStateError
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.federation import Federation
from clma.ledger.tables import TABLE_NAMES, clients_with_events, read_rows, read_table
from clma.records import ArtifactRef
from clma.rows import AssignmentRow, CohortRow, DriftRow, RoundDecision
from tasks.tracking.summary import active_rows

__all__ = ["Forgetting", "History", "Times"]


@dataclass(frozen=True, slots=True)
class Times:
    """When a round was sealed and committed, in milliseconds since 1970 (UTC).

    `told` is when its numbers got what they are: later than `committed` if a client was forgotten
    since, so that MLflow takes them for newer.
    """

    sealed: int
    committed: int
    told: int


@dataclass(frozen=True, slots=True)
class Forgetting:
    """A client that was forgotten, and what of the past changed by that.

    Parameters
    ----------
    number : int
        Of its ledger entry.
    at : int
        Milliseconds since 1970.
    rounds : frozenset of int
        Committed rounds whose tables, settings or models were rewritten.
    """

    number: int
    at: int
    rounds: frozenset[int]


class History:
    """Committed rounds; their entries and tables are read when they are asked for, and kept.

    Parameters
    ----------
    federation : Federation
        As it is now: rounds that are committed later are not seen.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._rounds = federation.committed_rounds()
        self._forgotten = tuple(federation.journal.forgettings())
        self._decisions: dict[int, RoundDecision] = {}
        self._cohorts: dict[int, tuple[CohortRow, ...]] = {}
        self._replaced = federation.replaced_artifacts()

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the committed rounds, rising."""
        return self._rounds

    def times(self, round_num: int) -> Times:
        """Return when a round was decided; RoundStateError if it was not."""
        committed = self._entry(round_num)
        sealed = self._federation.journal.find(EntryKind.ROUND_SEALED, round_num) or committed
        at = _milliseconds(committed.at)
        # Clocks may differ; what was forgotten later is later.
        changes = [_milliseconds(f.at) for f in self._forgotten if self._changed(round_num, f)]
        told = max([at, *changes, at + len(changes)])
        return Times(_milliseconds(sealed.at), at, told)

    @cached_property
    def forgettings(self) -> tuple[Forgetting, ...]:
        """Clients that were forgotten, in the order of the ledger."""
        return tuple(
            Forgetting(
                entry.number,
                _milliseconds(entry.at),
                frozenset(r for r in self._rounds if self._changed(r, entry)),
            )
            for entry in self._forgotten
        )

    def _changed(self, round_num: int, forgetting: Entry) -> bool:
        committed = self._entry(round_num)
        return committed.number < forgetting.number and not forgetting.payload[
            "replaced"
        ].keys().isdisjoint(self._paths(committed))

    def _paths(self, committed: Entry) -> set[str]:
        """Return where the tables and the settings of a round lie."""
        tables = committed.payload["tables"].values()
        settings = self._federation.journal.state_after(committed.number).config
        return {*(ref["path"] for ref in tables), *([settings.path] if settings else [])}

    def decision(self, round_num: int) -> RoundDecision:
        """Return what a round decided; RoundStateError if it is not committed."""
        self._entry(round_num)
        if round_num not in self._decisions:
            store = self._federation.store
            rows: dict[str, Any] = {n: read_rows(store, round_num, n) for n in TABLE_NAMES}
            self._decisions[round_num] = RoundDecision(round_num, **rows)
        return self._decisions[round_num]

    def assignments(
        self, round_num: int, client_ids: Set[str] | None = None
    ) -> tuple[AssignmentRow, ...]:
        """Return where all or some clients were after a round; nothing of it is kept."""
        store = self._federation.store
        return read_rows(store, round_num, "assignments", client_ids=client_ids)

    def drift(self, round_num: int, client_ids: Set[str] | None = None) -> tuple[DriftRow, ...]:
        """Return what all or some updates of a round showed; nothing of it is kept."""
        return read_rows(self._federation.store, round_num, "drift", client_ids=client_ids)

    def has_losses(self, round_num: int) -> bool:
        """Tell whether any client shared its loss in a round."""
        losses = read_table(self._federation.store, round_num, "drift")["loss"]
        return bool(losses.null_count < len(losses))

    def clients_with_events(self, rounds: Iterable[int]) -> frozenset[str]:
        """Return who flagged drift, changed cohort or was in quarantine in one of the rounds."""
        found = (clients_with_events(self._federation.store, r) for r in rounds)
        return frozenset[str]().union(*found)

    def cohorts(self, round_num: int) -> tuple[CohortRow, ...]:
        """Return the cohorts after a round, without reading the other tables."""
        self._entry(round_num)
        if round_num in self._decisions:
            return self._decisions[round_num].cohorts
        if round_num not in self._cohorts:
            self._cohorts[round_num] = read_rows(self._federation.store, round_num, "cohorts")
        return self._cohorts[round_num]

    def cohort(self, round_num: int, cohort_id: str) -> CohortRow:
        """Return the row of a cohort that is active after a round.

        Raises
        ------
        RoundStateError
            If the round is not committed or the cohort is not active in it.
        """
        active = {row.cohort_id: row for row in active_rows(self.cohorts(round_num))}
        if cohort_id not in active:
            raise RoundStateError(
                f"round {round_num} of {self._federation.name!r} has no active cohort "
                f"{cohort_id!r}, active are {', '.join(active) or 'none'}"
            )
        return active[cohort_id]

    def tables(self, round_num: int) -> dict[str, bytes]:
        """Return the bytes of a round's tables by name; DamagedStoreError if they were changed."""
        refs = self._entry(round_num).payload["tables"]
        read = self._federation.read_recorded
        return {name: read(ArtifactRef(**ref)) for name, ref in refs.items()}

    def table_digests(self, round_num: int) -> dict[str, str]:
        """Return the SHA-256 of a round's tables by name, as forgetting clients left them."""
        refs = self._entry(round_num).payload["tables"]
        return {n: self._replaced.get(ref["path"], ref["sha256"]) for n, ref in refs.items()}

    def _entry(self, round_num: int) -> Entry:
        found = None
        if round_num in self._rounds:
            found = self._federation.journal.find(EntryKind.ROUND_COMMITTED, round_num)
        if found is None:
            raise RoundStateError(
                f"round {round_num} of {self._federation.name!r} is not committed: "
                "there is nothing to publish"
            )
        return found


def _milliseconds(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)
