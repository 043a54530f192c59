"""Read again the signatures that clients were placed by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from clma.errors import DamagedStoreError, InvalidUpdateError
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.journal import Payload
from clma.ledger.side_by_side import side_by_side
from clma.ledger.signatures import KeptSignature
from clma.records import ArtifactRef
from clma.signatures.file import read_signature
from clma.signatures.fmcl import KIND

__all__ = ["kept_signatures"]


def kept_signatures(
    federation: Federation,
    placed_rounds: Mapping[str, int],
    opening: Payload | None = None,
) -> dict[str, KeptSignature]:
    """Return what clients were placed by, as the entries that opened their rounds name it.

    Parameters
    ----------
    federation : Federation
    placed_rounds : mapping of client id to int
        Round for which each was placed.
    opening : mapping, optional
        Evidence of a round that is about to open; counts before the ledger's.

    Raises
    ------
    DamagedStoreError
        If a copy is missing or was changed; names it.
    """
    fresh = {} if opening is None else opening["signatures"]
    by_round: dict[int, list[str]] = defaultdict(list)
    for client_id, round_num in placed_rounds.items():
        if client_id not in fresh:
            by_round[round_num].append(client_id)
    refs = {c: (ref, opening["encoder"]) for c, ref in fresh.items()} if opening else {}
    for round_num, client_ids in by_round.items():
        evidence = _evidence(federation, round_num)
        named = evidence.get("signatures", {})
        refs |= {c: (named[c], evidence["encoder"]) for c in client_ids if c in named}
    wanted = [c for c in sorted(placed_rounds) if c in refs]

    def read(client_id: str) -> KeptSignature:
        ref, encoder = refs[client_id]
        return _read(federation, ArtifactRef(ref["path"], ref["sha256"]), encoder)

    return dict(zip(wanted, side_by_side(read, wanted), strict=True))


def _evidence(federation: Federation, round_num: int) -> Payload:
    entry = federation.journal.find(EntryKind.ROUND_OPENED, round_num)
    found: Payload = {} if entry is None else entry.payload.get("onboarding", {})
    return found


def _read(federation: Federation, ref: ArtifactRef, encoder: str) -> KeptSignature:
    path = federation.store.verified_path(ref)
    try:
        return KeptSignature(read_signature(path, KIND, encoder), ref)
    except InvalidUpdateError as error:
        raise DamagedStoreError(f"{ref.path}: {error}") from None
