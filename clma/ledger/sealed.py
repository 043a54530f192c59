"""The sealed inputs of a round: canonical JSON and back, and the file that fixes them."""

from __future__ import annotations

import hashlib

from pydantic import TypeAdapter, ValidationError

from clma.config import FederationConfig
from clma.errors import ConflictError, DamagedStoreError
from clma.ledger.chain import canonical_json
from clma.ledger.inbox import read_inbox
from clma.ledger.keys import sealed_key
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState, TensorSpec
from clma.rows import SealedRound

__all__ = ["parse_sealed", "sealed_bytes", "write_sealed"]

_SEALED = TypeAdapter(SealedRound)


def sealed_bytes(sealed: SealedRound) -> bytes:
    """Write a sealed round; equal records give equal bytes."""
    return canonical_json(_SEALED.dump_python(sealed, mode="json"))


def parse_sealed(data: bytes) -> SealedRound:
    """Read a sealed round; DamagedStoreError if it is none."""
    try:
        return _SEALED.validate_json(data)
    except ValidationError as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedStoreError(f"not a sealed round: {first_line}") from None


def write_sealed(
    store: Store,
    state: FederationState,
    config: FederationConfig,
    specs: tuple[TensorSpec, ...],
    before: SealedRound | None,
) -> ArtifactRef:
    """Judge the inbox of the open round and record the result, once.

    The first record counts, also one whose writer was killed before its entry: what it lists was
    checked, and a second look at the inbox might see other files.
    """
    key = sealed_key(state.round_num)
    if not store.exists(key):
        sealed = read_inbox(store, state, config, specs, before)
        try:
            return store.put_if_absent(key, sealed_bytes(sealed))
        except ConflictError:
            pass
    return ArtifactRef(key, hashlib.sha256(store.get(key)).hexdigest())
