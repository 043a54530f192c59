"""The whole state after an entry, in a file that the entry names: where reading may begin.

An entry that opens a round carries ``checkpoint: {path, sha256}``, and through it the chain vouches
for the file. It saves work and holds nothing of its own: one that is missing or damaged is passed
over for an older one, or for the entries themselves, and a forgotten client is taken out of the
past by deleting all that were made before.

Examples
--------
>>> from clma.ledger.store import Store
>>> checkpoints = Checkpoints(Store.open("memory://checkpoint-example"))
>>> checkpoints.write(Checkpoint(7, FederationState("north", round_num=2))).path
'checkpoints/00000007-c26e06a5356c58db.json'
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from clma.errors import DamagedStoreError, StorageError
from clma.ledger.entry import Entry, EntryKind, canonical_json
from clma.ledger.keys import CHECKPOINTS_PREFIX, checkpoint_key, checkpoint_number
from clma.ledger.recent import Recent
from clma.ledger.state import changes, fold, next_state
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState

__all__ = ["CHECKPOINT", "N_KEPT", "Checkpoint", "Checkpoints", "checkpoint_of"]

CHECKPOINT = "checkpoint"
"""Field of an entry's payload; no part of what the entry decides."""

N_KEPT = 2
"""Newest ones that stay: a damaged one costs the entries of one round."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a night has to know of everything before it.

    Parameters
    ----------
    number : int
        Of the newest entry that is in it; -1 for none.
    state : FederationState
        After that entry.
    committed : mapping of round to number
        The entry that committed each round.
    forgotten : mapping of number to SHA-256
        The entries that say that a client was forgotten; they are never redacted.
    """

    number: int = -1
    state: FederationState = field(default_factory=lambda: FederationState(""))
    committed: Mapping[int, int] = field(default_factory=dict)
    forgotten: Mapping[int, str] = field(default_factory=dict)

    def after(self, entry: Entry, sha256: str) -> Checkpoint:
        """Return what is known after the next entry, of this digest; this one is not modified."""
        noted = self.noting(entry, sha256)
        return replace(noted, number=entry.number, state=fold([entry], self.state))

    def leading_to(self, payload: Mapping[str, Any]) -> Checkpoint:
        """Return what the next entry may name, which has this payload and no digest yet."""
        return replace(self, number=self.number + 1, state=next_state(self.state, payload))

    def noting(self, entry: Entry, sha256: str) -> Checkpoint:
        """Return the same with where an entry stands, if that is looked for later."""
        if entry.kind is EntryKind.ROUND_COMMITTED:
            committed = {**self.committed, int(entry.payload["round"]): entry.number}
            return replace(self, committed=committed)
        if entry.kind is EntryKind.CLIENT_FORGOTTEN:
            return replace(self, forgotten={**self.forgotten, entry.number: sha256})
        return self


def checkpoint_of(entry: Entry) -> ArtifactRef | None:
    """Return the checkpoint that an entry names, None where it names none of its own."""
    named = entry.payload.get(CHECKPOINT)
    if not isinstance(named, Mapping):
        return None
    path, digest = str(named.get("path")), str(named.get("sha256"))
    return ArtifactRef(path, digest) if checkpoint_number(path) == entry.number else None


class Checkpoints:
    """Reads, writes and clears away the checkpoints of a federation.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, entry: Entry, sha256: str) -> Checkpoint | None:
        """Return what an entry's checkpoint says; None where there is none that can be used.

        Parameters
        ----------
        entry : Entry
        sha256 : str
            Of the entry; no checkpoint can hold it.
        """
        ref = checkpoint_of(entry)
        if ref is None:
            return None
        try:
            checkpoint = _PARSED.of(self._store.get_verified(ref))
        except (DamagedStoreError, StorageError):
            return None
        return checkpoint.noting(entry, sha256) if checkpoint.number == entry.number else None

    def write(self, checkpoint: Checkpoint) -> ArtifactRef:
        """Write a checkpoint durably, for the entry of its number to name."""
        data = _checkpoint_bytes(checkpoint)
        key = checkpoint_key(checkpoint.number, hashlib.sha256(data).hexdigest())
        # Not `put_once`: whatever a killed writer left under this name, the entry needs it whole.
        return self._store.replace(key, data)

    def newest_first(self, *, upto: int) -> list[tuple[int, str]]:
        """Return number and key of the checkpoints that are there, of entries up to a number.

        None where the folder cannot be listed: clearing away only saves space.
        """
        keys: Sequence[str] = ()
        with contextlib.suppress(StorageError, DamagedStoreError):
            keys = self._store.list(CHECKPOINTS_PREFIX)
        numbered = [(number, key) for key in keys if (number := checkpoint_number(key)) is not None]
        return [found for found in reversed(numbered) if found[0] <= upto]

    def delete(self, key: str) -> None:
        """Delete a checkpoint; one that cannot be deleted does no harm."""
        with contextlib.suppress(StorageError, DamagedStoreError):
            self._store.delete(key)


def _checkpoint_bytes(checkpoint: Checkpoint) -> bytes:
    """Write a checkpoint; its state is what leads there from nothing, as in an entry."""
    values = {
        "number": checkpoint.number,
        "state": changes(FederationState(""), checkpoint.state),
        "committed": {str(r): number for r, number in checkpoint.committed.items()},
        "forgotten": {str(number): digest for number, digest in checkpoint.forgotten.items()},
    }
    return canonical_json(values)


def _parse_checkpoint(data: bytes) -> Checkpoint:
    try:
        values = json.loads(data)
        return Checkpoint(
            number=int(values["number"]),
            state=next_state(FederationState(""), values["state"]),
            committed={int(r): int(number) for r, number in values["committed"].items()},
            forgotten={int(n): str(digest) for n, digest in values["forgotten"].items()},
        )
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedStoreError(f"not a checkpoint: {first_line}") from None


_PARSED = Recent(_parse_checkpoint, n_kept=N_KEPT)
