"""The sealed inputs of a round: canonical JSON and back, and the file that fixes them."""

from __future__ import annotations

import hashlib

from pydantic import TypeAdapter, ValidationError

from clma.config import FederationConfig
from clma.errors import ConflictError, DamagedStoreError
from clma.ledger.chain import canonical_json
from clma.ledger.inbox import find_tensors, read_inbox
from clma.ledger.keys import sealed_key, updates_prefix
from clma.ledger.recent import Recent
from clma.ledger.side_by_side import side_by_side
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState, SealedUpdate, TensorSpec
from clma.rows import SealedRound

__all__ = ["parse_sealed", "sealed_bytes", "tidy_inbox", "write_sealed"]

_SEALED = TypeAdapter(SealedRound)


def sealed_bytes(sealed: SealedRound) -> bytes:
    """Write a sealed round; equal records give equal bytes."""
    return canonical_json(_SEALED.dump_python(sealed, mode="json"))


def parse_sealed(data: bytes) -> SealedRound:
    """Read a sealed round; DamagedStoreError if it is none."""
    return _PARSED.of(data)


def write_sealed(
    store: Store,
    state: FederationState,
    config: FederationConfig,
    specs: tuple[TensorSpec, ...],
    before: SealedRound | None,
    *,
    basis: int,
) -> ArtifactRef:
    """Judge the inbox of the open round and record the result, once for each state of the ledger.

    The first record counts, also one whose writer was killed before its entry: what it lists was
    checked, and a second look at the inbox might see other files. It counts as long as the ledger
    has the same `basis` entries: a key that was revoked since has to be seen.
    """
    key = sealed_key(state.round_num, basis)
    if not store.exists(key):
        sealed = read_inbox(store, state, config, specs, before)
        if sealed.updates:
            store.sync(updates_prefix(state.round_num))
        try:
            return store.put_if_absent(key, sealed_bytes(sealed))
        except ConflictError:
            pass
    # An entry will name it; the writer may have been stopped before its name was on the disk.
    store.make_durable(key)
    return ArtifactRef(key, hashlib.sha256(store.get(key)).hexdigest())


def tidy_inbox(store: Store, sealed: SealedRound) -> None:
    """Delete what a sealed round no longer needs: files whose checked copy it keeps.

    Messages stay, so that a client that sends again learns that it had sent. Copies that no record
    names are what a killed seal left.
    """
    kept = {update.tensors.path: update for update in sealed.updates}
    for key in store.list(updates_prefix(sealed.round_num)):
        if key not in kept:
            store.delete(key)

    def delete_original(update: SealedUpdate) -> None:
        digest = update.tensors.sha256
        store.delete(find_tensors(store, sealed.round_num, update.client_id, digest))

    copied = [u for path, u in kept.items() if path.startswith(updates_prefix(sealed.round_num))]
    side_by_side(delete_original, copied)


def _parse_sealed(data: bytes) -> SealedRound:
    try:
        return _SEALED.validate_json(data)
    except ValidationError as error:
        first_line = str(error).partition("\n")[0]
        raise DamagedStoreError(f"not a sealed round: {first_line}") from None


# That of the night, which each of its tasks reads, and that of the night before.
_PARSED = Recent(_parse_sealed, n_kept=2)
