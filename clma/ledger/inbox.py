"""Read what clients dropped for a round, and fix what of it is used.

One bad folder costs that client's vote and nothing else: whatever is found becomes a row. Only what
the store itself refuses (a disk that fails, a server that does not answer) is no fault of the
client: the seal fails, and can be tried again.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from clma.cohorting.offers import admissible_bases
from clma.config import FederationConfig
from clma.errors import (
    ClmaError,
    DamagedStoreError,
    InvalidUpdateError,
    MissingObjectError,
    StorageError,
)
from clma.ledger.keys import (
    inbox_prefix,
    is_client_id,
    printable,
    sealed_tensors_key,
    update_key,
)
from clma.ledger.refusals import SENDERS_FAULTS, our_refusals_named
from clma.ledger.side_by_side import side_by_side
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
    check_base,
    check_digest,
    check_message,
    check_sender,
    check_size,
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

_SPARE_MESSAGE = re.compile(r"update\.[0-9a-f]{64}\.json")
_MAX_SPARE_MESSAGES = 256
"""Looked at per client: a client writes one, and only if a stranger was first."""

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
        signed=config.identity.updates == "signed",
        keys=state.keys.get(client.client_id, ()),
        max_clock_skew_hours=config.identity.max_clock_skew_hours,
        other_bases=admissible_bases(state, client, config),
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

    def judged(client: ClientState) -> _Judged:
        client_id = client.client_id
        folder = _Folder(store, state.round_num, client_id, files.get(client_id, ()))
        return _judge_folder(folder, client, expected_update(state, client, config, specs))

    found = side_by_side(judged, list(state.clients.values()))
    updates = [one.update for one in found if one.update is not None]
    rows = [row for one in found for row in one.rows]
    rows += [_stranger(folder) for folder in files.keys() - state.clients.keys()]
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

    def spare_messages(self) -> list[str]:
        """Return the names of messages that came second, sorted."""
        return sorted(name for name in self.files if _SPARE_MESSAGE.fullmatch(name))


def _files_by_client(store: Store, round_num: int) -> dict[str, tuple[str, ...]]:
    prefix = inbox_prefix(round_num)
    found: dict[str, list[str]] = {}
    for key in store.list(prefix):
        client_id, _, name = key.removeprefix(prefix + "/").partition("/")
        found.setdefault(client_id, []).append(name)
    return {client_id: tuple(names) for client_id, names in found.items()}


@dataclass(frozen=True, slots=True)
class _Judged:
    """What became of a client's folder."""

    rows: tuple[UpdateRow, ...] = ()
    update: SealedUpdate | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A message in a client's folder; `is_own`: the client is known to have signed it."""

    name: str
    received_at: dt.datetime
    message: UpdateMessage
    is_own: bool = False


def _judge_folder(folder: _Folder, client: ClientState, expected: ExpectedUpdate) -> _Judged:
    if not folder.files:
        if client.status in _AWAY or client.joined_round > expected.round_num:
            return _Judged()
        reason = Reason.MISSED_DEADLINE.value
        return _Judged((UpdateRow(client.client_id, Verdict.MISSING, reason),))
    row, update, chosen = _judge(folder, client, expected)
    return _Judged((row, *_conflicts(folder, chosen)), update)


def _judge(
    folder: _Folder, client: ClientState, expected: ExpectedUpdate
) -> tuple[UpdateRow, SealedUpdate | None, str]:
    row = UpdateRow(client.client_id, Verdict.REJECTED)
    chosen = MESSAGE_FILE
    try:
        _check_present(client)
        found = _find_message(folder, expected)
        chosen, message = found.name, found.message
        row = replace(row, received_at=found.received_at)
        if not found.is_own:
            check_sender(message, expected)
        row = _with_message(row, message, expected.share)
        check_message(message, expected)
        row, update = _take_tensors(folder, row, message, expected)
    except InvalidUpdateError as error:
        return replace(row, reason=error.reason, detail=printable(str(error), 500)), None, chosen
    except MissingObjectError:
        row = replace(row, reason=Reason.INCOMPLETE.value, detail=_what_is_missing(folder))
        return row, None, chosen
    except DamagedStoreError as error:
        return _unreadable(row, error), None, chosen
    except StorageError as error:
        if error.errno not in SENDERS_FAULTS:
            raise
        return _unreadable(row, error), None, chosen
    return row, update, chosen


def _unreadable(row: UpdateRow, error: ClmaError) -> UpdateRow:
    return replace(row, reason=Reason.BAD_FORMAT.value, detail=printable(str(error), 300))


def _check_present(client: ClientState) -> None:
    if client.status in _AWAY:
        raise InvalidUpdateError(f"the client is {client.status.value}", _AWAY[client.status])


def _find_message(folder: _Folder, expected: ExpectedUpdate) -> _Found:
    """Return the first message that is the client's own; the usual one where none is.

    Whoever can write to the inbox can put something under the usual name first; in a federation
    that signs, that does not silence the client.
    """
    if expected.signed:
        for name in (MESSAGE_FILE, *folder.spare_messages()[:_MAX_SPARE_MESSAGES]):
            try:
                found = _read_message(folder, name)
                check_sender(found.message, expected)
            except (InvalidUpdateError, DamagedStoreError):
                continue
            except StorageError as error:
                if error.errno not in SENDERS_FAULTS:
                    raise
                continue
            return replace(found, is_own=True)
    return _read_message(folder, MESSAGE_FILE)


def _read_message(folder: _Folder, name: str) -> _Found:
    info, data = folder.store.look(folder.key(name), max_bytes=MAX_MESSAGE_BYTES)
    if info.size_bytes > MAX_MESSAGE_BYTES:
        raise InvalidUpdateError(
            f"update.json: {info.size_bytes} bytes, at most {MAX_MESSAGE_BYTES} are read",
            Reason.BAD_METADATA,
        )
    return _Found(name, info.modified, parse_message(data))


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
    # Before anything is downloaded.
    check_size(folder.store.info(key).size_bytes, expected)
    target = sealed_tensors_key(folder.round_num, folder.client_id, message.tensors_sha256)
    limit = limits_for(expected.specs).file_bytes
    # A copy of our own is checked and kept: the client can still write to its file.
    with folder.store.intake(key, target, max_bytes=limit) as copy:
        check_size(copy.size_bytes, expected)
        check_digest(copy.sha256, message, expected)
        with our_refusals_named("read", target, folder.store.url):
            check_tensors(copy.path, expected)
        check_base(message, expected)
        checked = admit(message, expected, copy.keep(), row.received_at)
    row = replace(
        row,
        verdict=Verdict.ACCEPTED,
        bytes=copy.size_bytes,
        reason=checked.notes[0][0].value if checked.notes else None,
        detail="; ".join(text for _, text in checked.notes) or None,
    )
    return row, checked.update


def _what_is_missing(folder: _Folder) -> str:
    missing = [name for name in (MESSAGE_FILE, TENSORS_FILE) if name not in folder.files]
    return f"{' and '.join(missing) or 'a file'} was not there when the round was sealed"


def _conflicts(folder: _Folder, chosen: str) -> Iterator[UpdateRow]:
    others = {MESSAGE_FILE, *folder.spare_messages()} - {chosen}
    for name in sorted(others & set(folder.files)):
        yield UpdateRow(
            folder.client_id,
            Verdict.REJECTED,
            Reason.CONFLICTING_UPDATE.value,
            "a second, different update; the first one counts"
            if chosen == MESSAGE_FILE
            else "not the client's own; the one that it signed counts",
            digest=None if name == MESSAGE_FILE else name.split(".")[1],
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
