"""The chain of numbered entries: commit, lock, history and audit trail in one mechanism.

Entry n is the object ``ledger/0000000n.json``, created only if it is absent, and holds the SHA-256
of the bytes of entry n - 1. Two writers of one number: exactly one wins, the other reads again.

Examples
--------
>>> from clma.ledger.store import Store
>>> chain = Chain(Store.open("memory://chain-example"))
>>> chain.append(EntryKind.FEDERATION_CREATED, {"federation": "f"}, expected_number=0).number
0
>>> [entry.kind.value for entry in chain.read_all()]
['federation-created']
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clma import __version__
from clma.errors import ConflictError, DamagedStoreError, MissingObjectError
from clma.ledger.keys import LEDGER_PREFIX, entry_key
from clma.ledger.store import Store

__all__ = ["Chain", "Entry", "EntryKind", "canonical_json"]

NO_ENTRY = "0" * 64
"""`previous` of entry 0."""


class EntryKind(StrEnum):
    """What can happen to a federation."""

    FEDERATION_CREATED = "federation-created"
    CONFIGURATION_CHANGED = "configuration-changed"
    CLIENT_REGISTERED = "client-registered"
    CLIENT_KEY_ADDED = "client-key-added"
    CLIENT_KEY_REVOKED = "client-key-revoked"
    CLIENT_PAUSED = "client-paused"
    CLIENT_RESUMED = "client-resumed"
    CLIENT_FORGOTTEN = "client-forgotten"
    ROUND_OPENED = "round-opened"
    ROUND_SEALED = "round-sealed"
    ROUND_COMMITTED = "round-committed"
    ROUND_HELD = "round-held"
    MODEL_PROMOTED = "model-promoted"
    MODEL_ROLLED_BACK = "model-rolled-back"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened.

    Parameters
    ----------
    number : int
        0 is the creation.
    kind : EntryKind
    at : datetime
        In UTC; for people, it decides nothing.
    previous : str
        SHA-256 of the bytes of the entry before.
    payload : mapping
        JSON values.
    software : str
        Who wrote it.
    """

    number: int
    kind: EntryKind
    at: dt.datetime
    previous: str
    payload: Mapping[str, Any]
    software: str = f"clma {__version__}"


def canonical_json(values: Any) -> bytes:
    """Write JSON values as UTF-8 with sorted keys and without NaN: equal values, equal bytes."""
    text = json.dumps(
        values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


class Chain:
    """Reads and appends entries; keeps what it has verified, so that reading again is cheap.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._head = NO_ENTRY

    def read_all(self) -> tuple[Entry, ...]:
        """Read and verify the whole chain, from the store's first byte.

        Raises
        ------
        DamagedStoreError
            If a number is missing, a name is foreign, or an entry was changed after the next one
            was written; names the entry.
        """
        keys = self._store.list(LEDGER_PREFIX)
        with self._lock:
            self._entries, self._head = [], NO_ENTRY
            for number, key in enumerate(keys):
                if key != entry_key(number):
                    raise DamagedStoreError(f"{entry_key(number)} is missing, found {key}")
                self._take(number, self._store.get(key))
            return tuple(self._entries)

    def read(self) -> tuple[Entry, ...]:
        """Return the chain with the entries that were added since the last look."""
        if not self._entries:
            return self.read_all()
        with self._lock:
            while True:
                number = len(self._entries)
                try:
                    data = self._store.get(entry_key(number))
                except MissingObjectError:
                    return tuple(self._entries)
                self._take(number, data)

    def append(
        self,
        kind: EntryKind,
        payload: Mapping[str, Any],
        *,
        expected_number: int,
        at: dt.datetime | None = None,
    ) -> Entry:
        """Add the entry with this number, or nothing.

        Parameters
        ----------
        kind : EntryKind
        payload : mapping
            JSON values.
        expected_number : int
            Length of the chain that the payload was made from.
        at : datetime, optional
            With a zone. Default: now.

        Raises
        ------
        ConflictError
            If the chain is longer by now, or another writer was first.
        """
        n_entries = len(self.read())
        if n_entries != expected_number:
            raise ConflictError(
                f"{self._store.url}: the ledger has {n_entries} entries, expected {expected_number}"
            )
        with self._lock:
            at = dt.datetime.now(dt.UTC) if at is None else at.astimezone(dt.UTC)
            entry = Entry(expected_number, kind, at, self._head, payload)
            data = _entry_bytes(entry)
            self._store.put_if_absent(entry_key(expected_number), data)
            self._take(expected_number, data)
            return self._entries[-1]

    def _take(self, number: int, data: bytes) -> None:
        # A second thread of this process may have taken the same entry already.
        if number < len(self._entries):
            return
        entry = _parse_entry(number, data)
        if entry.previous != self._head:
            raise DamagedStoreError(
                f"{entry_key(number)} follows an entry with SHA-256 {entry.previous[:12]}..., "
                f"{entry_key(number - 1) if number else 'nothing'} has {self._head[:12]}...: "
                "one of them was changed"
            )
        self._entries.append(entry)
        self._head = hashlib.sha256(data).hexdigest()


def _entry_bytes(entry: Entry) -> bytes:
    return canonical_json(
        {
            "number": entry.number,
            "kind": entry.kind.value,
            "at": entry.at.isoformat(),
            "previous": entry.previous,
            "payload": entry.payload,
            "software": entry.software,
        }
    )


def _parse_entry(number: int, data: bytes) -> Entry:
    try:
        values = json.loads(data)
        entry = Entry(
            number=values["number"],
            kind=EntryKind(values["kind"]),
            at=dt.datetime.fromisoformat(values["at"]),
            previous=values["previous"],
            payload=values["payload"],
            software=values["software"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStoreError(f"{entry_key(number)} is not an entry: {error}") from None
    # The bytes count, not what they mean: an entry that is only spelt differently was changed, too.
    if entry.number != number or _entry_bytes(entry) != data:
        raise DamagedStoreError(f"{entry_key(number)} was changed after it was written")
    return entry
