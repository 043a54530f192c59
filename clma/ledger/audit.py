"""Check a federation's folder: the chain, and every artifact that an entry names.

That includes the checkpoints: each has to be what the entries up to it come to.
What the folder holds and no entry names (an upload of the running round, a draft) is no problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clma.errors import DamagedStoreError, StorageError
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.checkpoint import CHECKPOINT, N_KEPT, Checkpoint, checkpoint_of
from clma.ledger.federation import Federation
from clma.ledger.keys import CHECKPOINTS_PREFIX, HEAD_KEY, entry_key
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
    checkpoints = _checkpoints_to_check(federation, entries, forgotten)
    refs: dict[str, ArtifactRef] = {ref.path: ref for ref in checkpoints.values()}
    for entry in entries:
        evidence = {k: v for k, v in entry.payload.items() if k != CHECKPOINT}
        refs |= {ref.path: ref for ref in _refs_in(evidence)}
    for path in [path for path in refs if _SEALED.fullmatch(path)]:
        refs |= _tensors_of(federation, refs[path])
    present = [ref for path, ref in refs.items() if path not in forgotten.removed]
    problems = [text for ref in present if (text := _problem(federation, ref, forgotten))]
    problems += _wrong_checkpoints(federation, entries, checkpoints)
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
    newest: int

    def after(self, entry: Entry) -> bool:
        """Tell whether a client was forgotten after an entry."""
        return entry.number < self.newest

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> _Forgotten:
        removed: set[str] = set()
        replaced: dict[str, str] = {}
        redacted: dict[int, str] = {}
        newest = -1
        for entry in entries:
            if entry.kind is EntryKind.CLIENT_FORGOTTEN:
                newest = entry.number
                removed |= set(entry.payload["removed"])
                replaced |= entry.payload["replaced"]
                redacted |= {int(n): d for n, d in entry.payload["redacted"].items()}
        return cls(frozenset(removed), replaced, redacted, newest)


def _checkpoints_to_check(
    federation: Federation, entries: Sequence[Entry], forgotten: _Forgotten
) -> dict[int, ArtifactRef]:
    """Return those that have to be there, and older ones as far as they are, by entry."""
    present = set(federation.store.list(CHECKPOINTS_PREFIX))
    found: dict[int, ArtifactRef] = {}
    for entry in reversed(entries):
        ref = checkpoint_of(entry)
        if ref is None or ref.path in forgotten.removed:
            continue
        if (len(found) < N_KEPT and not forgotten.after(entry)) or ref.path in present:
            found[entry.number] = ref
    return found


def _wrong_checkpoints(
    federation: Federation, entries: Sequence[Entry], refs: Mapping[int, ArtifactRef]
) -> Iterator[str]:
    """Fold all entries and tell which checkpoints say something else."""
    known = Checkpoint()
    for entry in entries[: max(refs, default=-1) + 1]:
        sha256 = federation.journal.digest(entry.number)
        known = known.after(entry, sha256)
        if entry.number in refs:
            says = federation.journal.read_checkpoint(entry)
            # One that cannot be read was told as an artifact.
            if says is not None and says != known:
                yield f"{refs[entry.number].path} is not what the ledger comes to"


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
