"""The chain of numbered entries: commit, lock, history and audit trail in one mechanism.

Entry n is the object ``ledger/0000000n.json``, created only if it is absent, and holds the SHA-256
of the bytes of entry n - 1. Two writers of one number: exactly one wins, the other reads again.

``head.json`` names the newest entry, so that a ledger whose end was cut off is told from a shorter
one; it may lag behind after a crash and never runs ahead.

An entry can be redacted, which is how a client is forgotten: it then says which digest it had, and
a later entry says which it has. So the chain holds, and only that later entry allows it.

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

import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clma import __version__
from clma.errors import ConflictError, DamagedStoreError, MissingObjectError, StorageError
from clma.ledger.keys import HEAD_KEY, LEDGER_PREFIX, entry_key
from clma.ledger.store import Store

__all__ = ["Chain", "Entry", "EntryKind", "Head", "canonical_json"]

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
    original : str or None
        Of a redacted entry: SHA-256 of the bytes it was written with, which the next one follows.
    """

    number: int
    kind: EntryKind
    at: dt.datetime
    previous: str
    payload: Mapping[str, Any]
    software: str = f"clma {__version__}"
    original: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry, as ``head.json`` names it.

    Parameters
    ----------
    number : int
    sha256 : str
        Of the entry as it was written.
    """

    number: int
    sha256: str


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
        self._digests: list[str] = []

    def read_all(self) -> tuple[Entry, ...]:
        """Read and verify the whole chain, from the store's first byte.

        Raises
        ------
        DamagedStoreError
            If a number is missing, a name is foreign, or an entry was changed after the next one
            was written; names the entry.
        """
        # The head goes first: entries that are added meanwhile are beyond it.
        head = self.head()
        keys = self._store.list(LEDGER_PREFIX)
        with self._lock:
            self._entries, self._digests = [], []
            redacted: dict[int, str] = {}
            for number, key in enumerate(keys):
                if key != entry_key(number):
                    raise DamagedStoreError(f"{entry_key(number)} is missing, found {key}")
                data = self._store.get(key)
                self._take(number, data)
                if self._entries[-1].original is not None:
                    redacted[number] = hashlib.sha256(data).hexdigest()
            self._check_redacted(redacted)
            self._check_head(head)
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

    def digest(self, number: int) -> str:
        """Return the SHA-256 of an entry as it was written, whatever was redacted since.

        Every entry holds the digest of the one before, so this one stands for all before it.
        """
        self.read()
        return self._digests[number]

    def head(self) -> Head | None:
        """Return what ``head.json`` says, None where there is none.

        Raises
        ------
        DamagedStoreError
            If it cannot be read.
        """
        try:
            values = json.loads(self._store.get(HEAD_KEY))
            return Head(int(values["number"]), str(values["sha256"]))
        except MissingObjectError:
            return None
        except (ValueError, KeyError, TypeError):
            raise DamagedStoreError(f"{HEAD_KEY} cannot be read") from None

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
            entry = Entry(expected_number, kind, at, self._previous(), payload)
            data = _entry_bytes(entry)
            self._store.put_if_absent(entry_key(expected_number), data)
            self._take(expected_number, data)
            # The entry is what counts; a head that lags is brought forward later.
            with contextlib.suppress(StorageError):
                self._write_head()
            return self._entries[-1]

    def bring_head_forward(self) -> None:
        """Name the newest entry in ``head.json``, if whoever wrote it could not."""
        entries = self.read()
        with self._lock:
            head = self.head()
            if head is not None and head.number < len(entries) - 1:
                self._write_head()

    def redact(self, number: int, payload: Mapping[str, Any]) -> bytes:
        """Return an entry's bytes with another payload; `replace` puts them in its place."""
        entry = self.read()[number]
        return _entry_bytes(
            dataclasses.replace(entry, payload=payload, original=self.digest(number))
        )

    def replace(self, number: int, data: bytes) -> None:
        """Put an entry's redacted bytes in its place; a later entry has to name their digest."""
        self._store.replace(entry_key(number), data)

    def _previous(self) -> str:
        return self._digests[-1] if self._digests else NO_ENTRY

    def _write_head(self) -> None:
        head = {"number": len(self._entries) - 1, "sha256": self._digests[-1]}
        self._store.replace(HEAD_KEY, canonical_json(head))

    def _check_head(self, head: Head | None) -> None:
        if head is None:
            return
        if head.number >= len(self._entries):
            raise DamagedStoreError(
                f"{entry_key(head.number)} is missing, {HEAD_KEY} names it as the newest entry; "
                f"if this is a backup that was made while a night ran, delete {HEAD_KEY}"
            )
        if head.number < 0 or self._digests[head.number] != head.sha256:
            raise DamagedStoreError(
                f"{entry_key(max(head.number, 0))} is not the entry that {HEAD_KEY} names"
            )

    def _check_redacted(self, redacted: Mapping[int, str]) -> None:
        allowed: dict[int, str] = {}
        for entry in self._entries:
            if entry.kind is EntryKind.CLIENT_FORGOTTEN:
                listed = entry.payload.get("redacted", {})
                allowed |= {int(n): d for n, d in listed.items() if int(n) < entry.number}
        for number, digest in redacted.items():
            if allowed.get(number) != digest:
                raise DamagedStoreError(f"{entry_key(number)} was changed after it was written")

    def _take(self, number: int, data: bytes) -> None:
        # A second thread of this process may have taken the same entry already.
        if number < len(self._entries):
            return
        entry = _parse_entry(number, data)
        if entry.previous != self._previous():
            raise DamagedStoreError(
                f"{entry_key(number)} follows an entry with SHA-256 {entry.previous[:12]}..., "
                f"{entry_key(number - 1) if number else 'nothing'} has {self._previous()[:12]}...: "
                "one of them was changed"
            )
        self._entries.append(entry)
        self._digests.append(entry.original or hashlib.sha256(data).hexdigest())


def _entry_bytes(entry: Entry) -> bytes:
    values = {
        "number": entry.number,
        "kind": entry.kind.value,
        "at": entry.at.isoformat(),
        "previous": entry.previous,
        "payload": entry.payload,
        "software": entry.software,
    }
    if entry.original is not None:
        values["original"] = entry.original
    return canonical_json(values)


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
            original=values.get("original"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStoreError(f"{entry_key(number)} is not an entry: {error}") from None
    # The bytes count, not what they mean: an entry that is only spelt differently was changed, too.
    if entry.number != number or _entry_bytes(entry) != data:
        raise DamagedStoreError(f"{entry_key(number)} was changed after it was written")
    return entry
