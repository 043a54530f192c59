"""One entry of the ledger: what it says, and the bytes it is written as.

Examples
--------
>>> at = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
>>> entry = Entry(0, EntryKind.ROUND_HELD, at, NO_ENTRY, {"round": 1})
>>> parse_entry(0, entry_bytes(entry)) == entry
True
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clma import __version__
from clma.errors import DamagedStoreError
from clma.ledger.keys import entry_key

__all__ = ["NO_ENTRY", "Entry", "EntryKind", "canonical_json", "entry_bytes", "parse_entry"]

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
    COHORTS_PLANNED = "cohorts-planned"
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


def canonical_json(values: Any) -> bytes:
    """Write JSON values as UTF-8 with sorted keys and without NaN: equal values, equal bytes."""
    text = json.dumps(
        values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def entry_bytes(entry: Entry) -> bytes:
    """Write an entry; equal entries give equal bytes."""
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


def parse_entry(number: int, data: bytes) -> Entry:
    """Read an entry.

    Raises
    ------
    DamagedStoreError
        If it is none, is another one, or is spelt in another way than it was written.
    """
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
    if entry.number != number or entry_bytes(entry) != data:
        raise DamagedStoreError(f"{entry_key(number)} was changed after it was written")
    return entry
