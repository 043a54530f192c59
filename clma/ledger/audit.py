"""Check a federation's folder: the chain, and every artifact that an entry names.

What the folder holds and no entry names (an upload of the running round, a draft) is no problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clma.errors import DamagedStoreError, StorageError
from clma.ledger.federation import Federation
from clma.ledger.sealed import parse_sealed
from clma.records import ArtifactRef, model_ref

__all__ = ["AuditReport", "audit"]

_DIGEST = re.compile(r"[0-9a-f]{64}")


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
    refs: dict[str, ArtifactRef] = {}
    for entry in entries:
        refs |= {ref.path: ref for ref in _refs_in(entry.payload)}
    problems = [text for ref in refs.values() if (text := _problem(federation, ref))]
    sealed = [ref for ref in refs.values() if ref.path.endswith("/sealed.json")]
    tensors: dict[str, ArtifactRef] = {}
    for ref in sealed:
        tensors |= _tensors_of(federation, ref)
    problems += [text for ref in tensors.values() if (text := _problem(federation, ref))]
    return AuditReport(len(entries), len(refs) + len(tensors), tuple(sorted(problems)))


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


def _problem(federation: Federation, ref: ArtifactRef) -> str | None:
    try:
        federation.store.verified_path(ref)
    except (DamagedStoreError, StorageError) as error:
        return str(error)
    return None
