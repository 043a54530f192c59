"""Objects of a federation's folder without a client: the same bytes whenever they are made."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from clma.config import parse_config, render_config
from clma.errors import DamagedStoreError
from clma.ledger.chain import Entry
from clma.ledger.erasure import (
    NewModel,
    config_without,
    payload_without,
    rows_without,
    sealed_without,
)
from clma.ledger.federation import Federation
from clma.ledger.sealed import parse_sealed, sealed_bytes
from clma.ledger.tables import read_rows, table_bytes
from clma.onboarding.record import parse_record, record_bytes, record_without

__all__ = ["carry_out", "digest_of", "rewritten"]

_TABLE = re.compile(r"rounds/round=(\d+)/(\w+)\.parquet")
_SEALED = re.compile(r"rounds/round=(\d+)/sealed-\d+\.json")
_COHORTS = re.compile(r"rounds/round=(\d+)/onboarding-[0-9a-f]+\.json")


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def rewritten(
    federation: Federation, key: str, client_id: str, models: Mapping[str, NewModel]
) -> bytes:
    """Return an object's bytes without a client; the same bytes if it does not name it."""
    store = federation.store
    data = store.get(key)
    if table := _TABLE.fullmatch(key):
        round_num, name = int(table[1]), table[2]
        rows = read_rows(store, round_num, name)
        cleaned = rows_without(rows, client_id, models)
        same = cleaned == rows
        return data if same else table_bytes(name, federation.name, round_num, cleaned)
    if _SEALED.fullmatch(key):
        sealed = parse_sealed(data)
        kept = sealed_without(sealed, client_id)
        return data if kept == sealed else sealed_bytes(kept)
    if _COHORTS.fullmatch(key):
        record = parse_record(data)
        others = record_without(record, client_id)
        return data if others == record else record_bytes(others)
    config = parse_config(data.decode())
    without = config_without(config, client_id)
    return data if without == config else render_config(without).encode()


def carry_out(federation: Federation, entry: Entry) -> None:
    """Do what the entry names and is not done yet."""
    store, payload = federation.store, entry.payload
    client_id = payload["forgotten"]["client_id"]
    pseudonym = payload["forgotten"]["pseudonym"]
    models = {old: NewModel(**new) for old, new in payload["models"].items()}
    for key, digest in payload["replaced"].items():
        if digest_of(store.get(key)) != digest:
            data = rewritten(federation, key, client_id, models)
            store.replace(key, _as_planned(key, data, digest))
    for number, digest in payload["redacted"].items():
        if federation.journal.file_digest(int(number)) != digest:
            old = federation.entries()[int(number)]
            cleaned = payload_without(old.payload, client_id, pseudonym)
            data = federation.journal.redact(old.number, cleaned)
            federation.journal.replace(old.number, _as_planned(f"entry {number}", data, digest))
    for key in payload["removed"]:
        store.delete(key)
    # Nights do not look that far back for what an attempt that was killed left half-written.
    store.sweep("rounds")
    for folder in sorted({key.rpartition("/")[0] for key in payload["removed"]}):
        store.prune(folder)
    # As a new reader sees it: this one may hold the configuration that named the client.
    Federation(store).write_operators_copy()


def _as_planned(what: str, data: bytes, digest: str) -> bytes:
    if digest_of(data) != digest:
        raise DamagedStoreError(f"{what} was changed since the client was forgotten")
    return data
