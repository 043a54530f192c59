"""The chain of numbered entries: commit, lock, history and audit trail in one mechanism.

Entry n is the object ``ledger/0000000n.json``, created only if it is absent, and holds the SHA-256
of the bytes of entry n - 1. Two writers of one number: exactly one wins, the other reads again.

``head.json`` names the newest entry, so that a ledger whose end was cut off is told from a shorter
one; it may lag behind after a crash and never runs ahead. It is also where reading begins: from
there back, as far as somebody asks, so that the length of the past costs nothing.

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
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from clma.errors import ConflictError, DamagedStoreError, MissingObjectError, StorageError
from clma.ledger.entry import (
    NO_ENTRY,
    Entry,
    EntryKind,
    canonical_json,
    entry_bytes,
    parse_entry,
)
from clma.ledger.keys import HEAD_KEY, LEDGER_PREFIX, entry_key
from clma.ledger.store import Store

__all__ = ["Chain", "Entry", "EntryKind", "Head", "canonical_json"]


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


@dataclass(frozen=True, slots=True)
class _Link:
    """An entry that was read, and the SHA-256 of its bytes: as written, and as they are now."""

    entry: Entry
    written: str
    found: str

    @property
    def is_redacted(self) -> bool:
        return self.entry.original is not None


class Chain:
    """Reads and appends entries; safe to use from several threads.

    What was read is kept: always the newest entries without a gap, each checked against the one
    that follows it.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._links: dict[int, _Link] = {}
        self._first = self._end = 0
        self._redacted: set[int] = set()
        """Entries that were read and that no later one was seen to allow yet."""

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
        keys = self._listed()
        links: dict[int, _Link] = {}
        for number, key in enumerate(keys):
            links[number] = _read_link(number, self._store.get(key))
            _check_follows(links.get(number - 1), links[number])
        _check_redacted(links, {n for n, link in links.items() if link.is_redacted})
        _check_head(head, links)
        with self._lock:
            self._links, self._first, self._end = links, 0, len(links)
            self._redacted.clear()
        return tuple(link.entry for link in links.values())

    def read(self) -> tuple[Entry, ...]:
        """Return the chain with the entries that were added since the last look."""
        with self._lock:
            if not self._links:
                return self.read_all()
            n_entries = self.n_entries()
            self.entry(0)
            return tuple(self._links[number].entry for number in range(n_entries))

    def n_entries(self) -> int:
        """Return how many entries there are by now, from ``head.json`` on.

        Raises
        ------
        DamagedStoreError
            If the end was cut off or changed; names the entry.
        """
        with self._lock:
            if not self._links:
                self._find_end()
            self._read_on()
            return self._end

    def entry(self, number: int) -> Entry:
        """Return an entry, which has to be there, as the entries after it witness it.

        Raises
        ------
        DamagedStoreError
            If it or one of those after it was changed or is missing.
        """
        return self._link(number).entry

    def newest_first(self) -> Iterator[Entry]:
        """Yield the entries from the newest back; those that nobody asks for are not read."""
        for number in reversed(range(self.n_entries())):
            yield self.entry(number)

    def digest(self, number: int) -> str:
        """Return the SHA-256 of an entry as it was written, whatever was redacted since.

        Every entry holds the digest of the one before, so this one stands for all before it.
        """
        return self._link(number).written

    def identity(self) -> str:
        """Return the SHA-256 of the first entry, by itself: without those that follow it."""
        with self._lock:
            known = self._links.get(0)
        return (known or _read_link(0, self._store.get(entry_key(0)))).written

    def pick(self, number: int, sha256: str) -> Entry:
        """Return an entry by the digest of its bytes, without those that follow it.

        Raises
        ------
        DamagedStoreError
            If it is missing or its bytes are others.
        """
        with self._lock:
            known = self._links.get(number)
        link = known or _read_link(number, self._store.get(entry_key(number)))
        if link.found != sha256:
            raise DamagedStoreError(f"{entry_key(number)} was changed after it was written")
        return link.entry

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
        with self._lock:
            n_entries = self.n_entries()
            if n_entries != expected_number:
                raise ConflictError(
                    f"{self._store.url}: the ledger has {n_entries} entries, "
                    f"expected {expected_number}"
                )
            at = dt.datetime.now(dt.UTC) if at is None else at.astimezone(dt.UTC)
            previous = self.digest(n_entries - 1) if n_entries else NO_ENTRY
            data = entry_bytes(Entry(n_entries, kind, at, previous, payload))
            self._store.put_if_absent(entry_key(n_entries), data)
            self._keep(_read_link(n_entries, data))
            # The entry is what counts; a head that lags is brought forward later.
            with contextlib.suppress(StorageError):
                self._write_head()
            return self.entry(n_entries)

    def bring_head_forward(self) -> None:
        """Name the newest entry in ``head.json``, if whoever wrote it could not."""
        with self._lock:
            n_entries = self.n_entries()
            head = self.head()
            if head is not None and head.number < n_entries - 1:
                self._write_head()

    def redact(self, number: int, payload: Mapping[str, Any]) -> bytes:
        """Return an entry's bytes with another payload; `replace` puts them in its place."""
        link = self._link(number)
        return entry_bytes(dataclasses.replace(link.entry, payload=payload, original=link.written))

    def replace(self, number: int, data: bytes) -> None:
        """Put an entry's redacted bytes in its place; a later entry has to name their digest."""
        self._store.replace(entry_key(number), data)

    def _listed(self) -> Sequence[str]:
        keys = self._store.list(LEDGER_PREFIX)
        for number, key in enumerate(keys):
            if key != entry_key(number):
                raise DamagedStoreError(f"{entry_key(number)} is missing, found {key}")
        return keys

    def _find_end(self) -> None:
        head = self.head()
        # Without a head nothing but the names tells how many there are.
        number = len(self._listed()) - 1 if head is None else head.number
        links: dict[int, _Link] = {}
        with contextlib.suppress(MissingObjectError):
            if number >= 0:
                links[number] = _read_link(number, self._store.get(entry_key(number)))
        _check_head(head, links)
        self._links, self._first, self._end = {}, number + 1, number + 1
        for link in links.values():
            self._keep(link)

    def _keep(self, link: _Link) -> None:
        number = link.entry.number
        self._links[number] = link
        self._first, self._end = min(self._first, number), max(self._end, number + 1)
        if link.is_redacted:
            self._redacted.add(number)

    def _read_on(self) -> None:
        while True:
            try:
                data = self._store.get(entry_key(self._end))
            except MissingObjectError:
                break
            link = _read_link(self._end, data)
            _check_follows(self._links.get(self._end - 1), link)
            self._keep(link)
        if self._redacted:
            _check_redacted(self._links, self._redacted)
            self._redacted.clear()

    def _link(self, number: int) -> _Link:
        with self._lock:
            if number >= self._end:
                self.n_entries()
            while number < self._first:
                self._read_back()
            if self._redacted:
                # What allows it may have been written since the last look.
                self._read_on()
            return self._links[number]

    def _read_back(self) -> None:
        number = self._first - 1
        try:
            link = _read_link(number, self._store.get(entry_key(number)))
        except MissingObjectError:
            raise DamagedStoreError(
                f"{entry_key(number)} is missing, {entry_key(self._first)} follows it"
            ) from None
        _check_follows(link, self._links[self._first])
        if number == 0:
            _check_follows(None, link)
        self._keep(link)

    def _write_head(self) -> None:
        number = self._end - 1
        head = {"number": number, "sha256": self._links[number].written}
        self._store.replace(HEAD_KEY, canonical_json(head))


def _read_link(number: int, data: bytes) -> _Link:
    entry, found = parse_entry(number, data), hashlib.sha256(data).hexdigest()
    return _Link(entry, entry.original or found, found)


def _check_follows(before: _Link | None, link: _Link) -> None:
    previous = before.written if before else NO_ENTRY
    number, says = link.entry.number, link.entry.previous
    if says != previous:
        raise DamagedStoreError(
            f"{entry_key(number)} follows an entry with SHA-256 {says[:12]}..., "
            f"{entry_key(number - 1) if number else 'nothing'} has {previous[:12]}...: "
            "one of them was changed"
        )


def _check_head(head: Head | None, links: Mapping[int, _Link]) -> None:
    if head is None:
        return
    link = links.get(head.number)
    if link is None and head.number >= 0:
        raise DamagedStoreError(
            f"{entry_key(head.number)} is missing, {HEAD_KEY} names it as the newest entry; "
            f"if this is a backup that was made while a night ran, delete {HEAD_KEY}"
        )
    if link is None or link.written != head.sha256:
        raise DamagedStoreError(
            f"{entry_key(max(head.number, 0))} is not the entry that {HEAD_KEY} names"
        )


def _check_redacted(links: Mapping[int, _Link], redacted: Set[int]) -> None:
    """Refuse a redaction that no later entry allows; `links` reach to the newest entry."""
    allowed: dict[int, str] = {}
    for link in sorted(links.values(), key=lambda known: known.entry.number):
        if link.entry.kind is EntryKind.CLIENT_FORGOTTEN:
            listed = link.entry.payload.get("redacted", {})
            allowed |= {int(n): d for n, d in listed.items() if int(n) < link.entry.number}
    for number in redacted:
        if allowed.get(number) != links[number].found:
            raise DamagedStoreError(f"{entry_key(number)} was changed after it was written")
