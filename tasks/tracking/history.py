"""The committed rounds of a federation and the clients it forgot, read from its ledger once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clma.errors import RoundStateError
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.federation import Federation
from clma.ledger.tables import TABLE_NAMES, read_rows
from clma.records import ArtifactRef
from clma.rows import CohortRow, RoundDecision
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
        self._cohorts: dict[int, tuple[CohortRow, ...]] = {}
        self._replaced = federation.replaced_artifacts()
        self._settings: dict[int, str] = {}
        settings = ""
        for entry in federation.entries():
            settings = (entry.payload.get("config") or {}).get("path", settings)
            if entry.kind is EntryKind.ROUND_SEALED:
                self._sealed[int(entry.payload["round"])] = entry
                self._settings[int(entry.payload["round"])] = settings
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
        at = _milliseconds(committed.at)
        # Clocks may differ; what was forgotten later is later.
        changes = [f.at for f in self.forgettings if round_num in f.rounds]
        told = max([at, *changes, at + len(changes)])
        return Times(_milliseconds(sealed.at), at, told)

    @cached_property
    def forgettings(self) -> tuple[Forgetting, ...]:
        """Clients that were forgotten, in the order of the ledger."""
        return tuple(
            Forgetting(
                entry.number,
                _milliseconds(entry.at),
                frozenset(
                    r
                    for r, committed in self._committed.items()
                    if committed.number < entry.number
                    and not entry.payload["replaced"].keys().isdisjoint(self._paths(r))
                ),
            )
            for entry in self._federation.entries()
            if entry.kind is EntryKind.CLIENT_FORGOTTEN
        )

    def _paths(self, round_num: int) -> set[str]:
        tables = self._committed[round_num].payload["tables"].values()
        return {*(ref["path"] for ref in tables), self._settings[round_num]}

    def decision(self, round_num: int) -> RoundDecision:
        """Return what a round decided; RoundStateError if it is not committed."""
        self._entry(round_num)
        if round_num not in self._decisions:
            store = self._federation.store
            rows: dict[str, Any] = {n: read_rows(store, round_num, n) for n in TABLE_NAMES}
            self._decisions[round_num] = RoundDecision(round_num, **rows)
        return self._decisions[round_num]

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
        if round_num not in self._committed:
            raise RoundStateError(
                f"round {round_num} of {self._federation.name!r} is not committed: "
                "there is nothing to publish"
            )
        return self._committed[round_num]


def _milliseconds(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)
