"""Check a federation's folder: the chain, and every artifact that an entry names.

What the folder holds and no entry names (an upload of the running round, a draft) is no problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from clma.errors import DamagedStoreError, StorageError
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.federation import Federation
from clma.ledger.keys import HEAD_KEY, entry_key
from clma.ledger.sealed import parse_sealed
from clma.records import ArtifactRef, model_ref

__all__ = ["AuditReport", "audit"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FINISH = "'clma forget' with the same client finishes it"
_SEALED = re.compile(r"rounds/round=\d+/sealed-\d+\.json")


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was found.

    Parameters
    ----------
    n_entries : int
    n_artifacts : int
        Hashed again.
    problems : tuple of str
        One line each; empty if all is well.
    """

    n_entries: int
    n_artifacts: int
    problems: tuple[str, ...]


def audit(federation: Federation) -> AuditReport:
    """Read the whole chain anew and hash every artifact that it names.

    Raises
    ------
    DamagedStoreError
        If the chain itself is broken: then nothing after the named entry can be believed.
    """
    entries = federation.journal.reread()
    forgotten = _Forgotten.of(entries)
    refs: dict[str, ArtifactRef] = {}
    for entry in entries:
        refs |= {ref.path: ref for ref in _refs_in(entry.payload)}
    for path in [path for path in refs if _SEALED.fullmatch(path)]:
        refs |= _tensors_of(federation, refs[path])
    present = [ref for path, ref in refs.items() if path not in forgotten.removed]
    problems = [text for ref in present if (text := _problem(federation, ref, forgotten))]
    problems += _unfinished(federation, forgotten)
    if federation.journal.head() is None:
        problems.append(
            f"{HEAD_KEY} is missing: nothing tells whether the end of the ledger was cut off"
        )
    stray = federation.stray_settings()
    problems += [stray] if stray else []
    return AuditReport(len(entries), len(present), tuple(sorted(problems)))


@dataclass(frozen=True, slots=True)
class _Forgotten:
    """What entries say of artifacts that were rewritten or removed to forget clients."""

    removed: frozenset[str]
    replaced: dict[str, str]
    redacted: dict[int, str]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> _Forgotten:
        removed: set[str] = set()
        replaced: dict[str, str] = {}
        redacted: dict[int, str] = {}
        for entry in entries:
            if entry.kind is EntryKind.CLIENT_FORGOTTEN:
                removed |= set(entry.payload["removed"])
                replaced |= entry.payload["replaced"]
                redacted |= {int(n): d for n, d in entry.payload["redacted"].items()}
        return cls(frozenset(removed), replaced, redacted)


def _refs_in(values: Any) -> Iterator[ArtifactRef]:
    if isinstance(values, dict):
        if set(values) == {"path", "sha256"}:
            yield ArtifactRef(values["path"], values["sha256"])
            return
        for key, value in values.items():
            if key.endswith("_digest") and isinstance(value, str) and _DIGEST.fullmatch(value):
                yield model_ref(value)
            else:
                yield from _refs_in(value)
    elif isinstance(values, list):
        for value in values:
            yield from _refs_in(value)


def _tensors_of(federation: Federation, ref: ArtifactRef) -> dict[str, ArtifactRef]:
    try:
        sealed = parse_sealed(federation.store.get(ref.path))
    except (DamagedStoreError, StorageError):
        return {}  # reported as a problem of the record itself
    return {update.tensors.path: update.tensors for update in sealed.updates}


def _problem(federation: Federation, ref: ArtifactRef, forgotten: _Forgotten) -> str | None:
    recorded = forgotten.replaced.get(ref.path, ref.sha256)
    try:
        found = federation.store.digest(ref.path)
    except (DamagedStoreError, StorageError) as error:
        return str(error)
    if found == recorded:
        return None
    if found == ref.sha256:
        return f"{ref.path} still names a client that was forgotten: {_FINISH}"
    return f"{ref.path} has SHA-256 {found[:12]}..., recorded is {recorded[:12]}..."


def _unfinished(federation: Federation, forgotten: _Forgotten) -> Iterator[str]:
    for key in sorted(forgotten.removed):
        # A model may be made again later, by other clients.
        if not key.startswith("models/") and federation.store.exists(key):
            yield f"{key} is of a client that was forgotten: {_FINISH}"
    for number, digest in forgotten.redacted.items():
        if federation.journal.file_digest(number) != digest:
            yield f"{entry_key(number)} still names a client that was forgotten: {_FINISH}"
