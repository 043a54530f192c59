"""Read what clients dropped for a round, and fix what of it is used.

One bad folder costs that client's vote and nothing else: whatever is found becomes a row. Only what
the store itself refuses (a disk that fails, a server that does not answer) is no fault of the
client: the seal fails, and can be tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from clma.config import FederationConfig
from clma.errors import (
    ClmaError,
    DamagedStoreError,
    InvalidUpdateError,
    MissingObjectError,
    StorageError,
)
from clma.ledger.keys import inbox_prefix, is_client_id, printable, update_key
from clma.ledger.refusals import SENDERS_FAULTS, refusals_named
from clma.ledger.store import Store
from clma.records import (
    ClientState,
    ClientStatus,
    FederationState,
    SealedUpdate,
    TensorSpec,
    UpdateMessage,
)
from clma.rows import SealedRound, UpdateRow, Verdict
from clma.updates.message import MAX_MESSAGE_BYTES, parse_message
from clma.updates.reasons import Reason
from clma.updates.validation import (
    ExpectedUpdate,
    admit,
    check_message,
    check_tensors,
    limits_for,
)

__all__ = [
    "MESSAGE_FILE",
    "TENSORS_FILE",
    "conflict_file",
    "expected_update",
    "find_tensors",
    "read_inbox",
    "spare_tensors_file",
]

MESSAGE_FILE = "update.json"
TENSORS_FILE = "update.safetensors"

_AWAY = {
    ClientStatus.PAUSED: Reason.CLIENT_PAUSED,
    ClientStatus.FORGOTTEN: Reason.UNKNOWN_CLIENT,
}


def spare_tensors_file(digest: str) -> str:
    """Return the name for tensors when another writer's lie under the usual one.

    Nothing in an inbox is ever written over: of two writers, or after a crash between tensors and
    message, the message that was first names its own tensors by digest.
    """
    return f"update.{digest}.safetensors"


def conflict_file(digest: str) -> str:
    """Return the name under which a message that came second is kept for the operator."""
    return f"update.{digest}.json"


def find_tensors(store: Store, round_num: int, client_id: str, digest: str) -> str:
    """Return the key of the tensors that a message names; it may not exist."""
    spare = update_key(round_num, client_id, spare_tensors_file(digest))
    return spare if store.exists(spare) else update_key(round_num, client_id, TENSORS_FILE)


def expected_update(
    state: FederationState,
    client: ClientState,
    config: FederationConfig,
    specs: tuple[TensorSpec, ...],
) -> ExpectedUpdate:
    """Return what the state says of a client's update."""
    return ExpectedUpdate(
        federation=state.federation,
        client_id=client.client_id,
        round_num=state.round_num,
        base_digest=client.serving_digest,
        specs=specs,
        share=config.privacy.share,
    )


def read_inbox(
    store: Store,
    state: FederationState,
    config: FederationConfig,
    specs: tuple[TensorSpec, ...],
    before: SealedRound | None = None,
) -> SealedRound:
    """Judge everything that lies in the inbox of the open round.

    Parameters
    ----------
    store : Store
    state : FederationState
        With the round open.
    config : FederationConfig
    specs : tuple of TensorSpec
        Of the federation's model.
    before : SealedRound, optional
        The round before: what came for it after it was sealed is listed as late.

    Returns
    -------
    SealedRound
        Sorted by client id; of one client the accepted row stands first.
    """
    files = _files_by_client(store, state.round_num)
    updates: list[SealedUpdate] = []
    rows: list[UpdateRow] = []
    for client_id, client in state.clients.items():
        found = _Folder(store, state.round_num, client_id, files.pop(client_id, ()))
        row, update = _judge(found, client, expected_update(state, client, config, specs))
        updates += [update] if update else []
        rows += [row] if row else []
        rows += _conflicts(found)
    rows += [_stranger(folder) for folder in files]
    if before is not None:
        rows += _late(store, state, before)
    return SealedRound(
        state.round_num,
        tuple(sorted(updates, key=lambda u: u.client_id)),
        tuple(sorted(rows, key=lambda r: (r.client_id, r.verdict.value, r.digest or ""))),
    )


@dataclass(frozen=True, slots=True)
class _Folder:
    store: Store
    round_num: int
    client_id: str
    files: tuple[str, ...]

    def key(self, file_name: str) -> str:
        return update_key(self.round_num, self.client_id, file_name)


def _files_by_client(store: Store, round_num: int) -> dict[str, tuple[str, ...]]:
    prefix = inbox_prefix(round_num)
    found: dict[str, list[str]] = {}
    for key in store.list(prefix):
        client_id, _, name = key.removeprefix(prefix + "/").partition("/")
        found.setdefault(client_id, []).append(name)
    return {client_id: tuple(names) for client_id, names in found.items()}


def _judge(
    folder: _Folder, client: ClientState, expected: ExpectedUpdate
) -> tuple[UpdateRow | None, SealedUpdate | None]:
    row = UpdateRow(client.client_id, Verdict.REJECTED)
    if not folder.files:
        if client.status in _AWAY or client.joined_round > expected.round_num:
            return None, None
        return replace(row, verdict=Verdict.MISSING, reason=Reason.MISSED_DEADLINE.value), None
    try:
        _check_present(client)
        row, message = _read_message(folder, row)
        row = _with_message(row, message, expected.share)
        check_message(message, expected)
        row, update = _take_tensors(folder, row, message, expected)
    except InvalidUpdateError as error:
        return replace(row, reason=error.reason, detail=printable(str(error), 500)), None
    except MissingObjectError:
        return replace(row, reason=Reason.INCOMPLETE.value, detail=_what_is_missing(folder)), None
    except DamagedStoreError as error:
        return _unreadable(row, error), None
    except StorageError as error:
        if error.errno not in SENDERS_FAULTS:
            raise
        return _unreadable(row, error), None
    return row, update


def _unreadable(row: UpdateRow, error: ClmaError) -> UpdateRow:
    return replace(row, reason=Reason.BAD_FORMAT.value, detail=printable(str(error), 300))


def _check_present(client: ClientState) -> None:
    if client.status in _AWAY:
        raise InvalidUpdateError(f"the client is {client.status.value}", _AWAY[client.status])


def _read_message(folder: _Folder, row: UpdateRow) -> tuple[UpdateRow, UpdateMessage]:
    info = folder.store.info(folder.key(MESSAGE_FILE))
    if info.size_bytes > MAX_MESSAGE_BYTES:
        raise InvalidUpdateError(
            f"update.json: {info.size_bytes} bytes, at most {MAX_MESSAGE_BYTES} are read",
            Reason.BAD_METADATA,
        )
    row = replace(row, received_at=info.modified)
    return row, parse_message(folder.store.get(folder.key(MESSAGE_FILE)))


def _with_message(row: UpdateRow, message: UpdateMessage, share: tuple[str, ...]) -> UpdateRow:
    return replace(
        row,
        digest=message.tensors_sha256,
        n_examples=message.n_examples,
        base_digest=message.base_digest,
        loss=message.loss if "loss" in share else None,
        drift_flag=message.drift_flag if "flag" in share else None,
    )


def _take_tensors(
    folder: _Folder, row: UpdateRow, message: UpdateMessage, expected: ExpectedUpdate
) -> tuple[UpdateRow, SealedUpdate]:
    key = find_tensors(folder.store, folder.round_num, folder.client_id, message.tensors_sha256)
    size = folder.store.info(key).size_bytes
    # Before anything is downloaded.
    if size > (limit := limits_for(expected.specs).file_bytes):
        raise InvalidUpdateError(
            f"tensors of {size} bytes, at most {limit} are read", Reason.BAD_FORMAT
        )
    with refusals_named("read", key, folder.store.url):
        check_tensors(folder.store.local_path(key), message.tensors_sha256, expected)
    _make_durable(folder.store, key)
    checked = admit(message, expected, key)
    row = replace(
        row,
        verdict=Verdict.ACCEPTED,
        bytes=size,
        reason=checked.notes[0][0].value if checked.notes else None,
        detail="; ".join(text for _, text in checked.notes) or None,
    )
    return row, checked.update


def _make_durable(store: Store, key: str) -> None:
    # An entry will name it, and who dropped it may not have waited for the disk.
    try:
        store.make_durable(key)
    except StorageError as error:
        # It was read a moment ago: without the number, it is no fault of the sender's.
        raise StorageError(str(error)) from None


def _what_is_missing(folder: _Folder) -> str:
    missing = [name for name in (MESSAGE_FILE, TENSORS_FILE) if name not in folder.files]
    return f"{' and '.join(missing) or 'a file'} was not there when the round was sealed"


def _conflicts(folder: _Folder) -> Iterator[UpdateRow]:
    wanted = len(conflict_file("0" * 64))
    for name in folder.files:
        if name.startswith("update.") and name.endswith(".json") and len(name) == wanted:
            yield UpdateRow(
                folder.client_id,
                Verdict.REJECTED,
                Reason.CONFLICTING_UPDATE.value,
                "a second, different update; the first one counts",
                digest=name.split(".")[1],
            )


def _stranger(folder: str) -> UpdateRow:
    reason = Reason.UNKNOWN_CLIENT if is_client_id(folder) else Reason.BAD_CLIENT_ID
    return UpdateRow(
        printable(folder), Verdict.REJECTED, reason.value, "no client of this id is registered"
    )


def _late(store: Store, state: FederationState, before: SealedRound) -> Iterator[UpdateRow]:
    judged = {row.client_id for row in before.rows if row.received_at is not None}
    for client_id, names in _files_by_client(store, before.round_num).items():
        if client_id in state.clients and client_id not in judged and MESSAGE_FILE in names:
            key = update_key(before.round_num, client_id, MESSAGE_FILE)
            try:
                received_at = store.info(key).modified
            except DamagedStoreError:
                continue
            except StorageError as error:
                if error.errno not in SENDERS_FAULTS:
                    raise
                continue
            yield UpdateRow(
                client_id,
                Verdict.LATE,
                Reason.STALE_ROUND.value,
                f"came for round {before.round_num} after it was sealed",
                received_at=received_at,
            )
