"""The committed rounds of a federation, read from its ledger once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from clma.errors import RoundStateError
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.federation import Federation
from clma.ledger.tables import TABLE_NAMES, read_rows
from clma.records import ArtifactRef
from clma.rows import CohortRow, RoundDecision
from tasks.tracking.summary import active_rows

__all__ = ["History", "Times"]


@dataclass(frozen=True, slots=True)
class Times:
    """When a round was sealed and committed, in milliseconds since 1970 (UTC)."""

    sealed: int
    committed: int


class History:
    """Committed rounds; tables are read when they are asked for and kept.

    Parameters
    ----------
    federation : Federation
        As it is now: rounds that are committed later are not seen.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._sealed: dict[int, Entry] = {}
        self._committed: dict[int, Entry] = {}
        self._decisions: dict[int, RoundDecision] = {}
        for entry in federation.entries():
            if entry.kind is EntryKind.ROUND_SEALED:
                self._sealed[int(entry.payload["round"])] = entry
            elif entry.kind is EntryKind.ROUND_COMMITTED:
                self._committed[int(entry.payload["round"])] = entry

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the committed rounds, rising."""
        return tuple(sorted(self._committed))

    def times(self, round_num: int) -> Times:
        """Return when a round was decided; RoundStateError if it was not."""
        committed = self._entry(round_num)
        sealed = self._sealed.get(round_num, committed)
        return Times(_milliseconds(sealed.at), _milliseconds(committed.at))

    def decision(self, round_num: int) -> RoundDecision:
        """Return what a round decided; RoundStateError if it is not committed."""
        self._entry(round_num)
        if round_num not in self._decisions:
            store = self._federation.store
            rows: dict[str, Any] = {n: read_rows(store, round_num, n) for n in TABLE_NAMES}
            self._decisions[round_num] = RoundDecision(round_num, **rows)
        return self._decisions[round_num]

    def cohort(self, round_num: int, cohort_id: str) -> CohortRow:
        """Return the row of a cohort that is active after a round.

        Raises
        ------
        RoundStateError
            If the round is not committed or the cohort is not active in it.
        """
        active = {row.cohort_id: row for row in active_rows(self.decision(round_num).cohorts)}
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

    def _entry(self, round_num: int) -> Entry:
        if round_num not in self._committed:
            raise RoundStateError(
                f"round {round_num} of {self._federation.name!r} is not committed: "
                "there is nothing to publish"
            )
        return self._committed[round_num]


def _milliseconds(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)
