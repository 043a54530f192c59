"""Put an update into the inbox: tensors first, then the message as commit marker.

Nothing is written over, so that of two writers exactly one counts, and a crash in between is
repaired by sending again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import NoReturn

from clma.errors import (
    ConflictError,
    DamagedStoreError,
    InvalidUpdateError,
    MissingObjectError,
    RoundStateError,
)
from clma.ledger.federation import Federation
from clma.ledger.inbox import MESSAGE_FILE, TENSORS_FILE, conflict_file, spare_tensors_file
from clma.ledger.keys import inbox_prefix, update_key
from clma.ledger.store import Store
from clma.records import Phase, UpdateMessage
from clma.rows import Verdict
from clma.updates.message import MAX_MESSAGE_BYTES, message_bytes, parse_message, same_update
from clma.updates.reasons import Reason
from clma.updates.validation import ExpectedUpdate, check_sender

__all__ = [
    "SentMessage",
    "check_in_time",
    "find_own",
    "find_sent",
    "refuse_second",
    "send_message",
    "send_tensors",
]

_MAX_LOOKED_AT = 16
"""Messages per client: it sends one, the others are a stranger's."""

_NOT_READABLE = UpdateMessage("", "", 0, "", 0, False, "", "")
"""Stands for a message that cannot be read: it is there, and equals none."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that lies in the inbox.

    Parameters
    ----------
    key : str
    message : UpdateMessage
    """

    key: str
    message: UpdateMessage


def find_sent(store: Store, message: UpdateMessage, expected: ExpectedUpdate) -> SentMessage | None:
    """Return what was sent for this client and round before, by the client itself."""
    spare = (conflict_file(message.tensors_sha256),) if expected.signed else ()
    for name in (MESSAGE_FILE, *spare):
        key = _key(message, name)
        try:
            found = parse_message(store.get(key))
            check_sender(found, expected)
        except MissingObjectError:
            continue
        except InvalidUpdateError:
            # What anybody else dropped there does not count where updates are signed.
            if not expected.signed:
                return SentMessage(key, _NOT_READABLE)
            continue
        if name == MESSAGE_FILE or same_update(found, message):
            return SentMessage(key, found)
    return None


def find_own(
    store: Store, round_num: int, client_id: str, expected: ExpectedUpdate
) -> UpdateMessage | None:
    """Return the message that lies in a client's folder of a round and is its own; None if none."""
    names = store.list(f"{inbox_prefix(round_num)}/{client_id}")
    messages = [key for key in names if key.endswith(".json")]
    # The usual one first, whatever a stranger has put beside it.
    messages.sort(key=lambda key: not key.endswith(f"/{MESSAGE_FILE}"))
    for key in messages[:_MAX_LOOKED_AT]:
        with contextlib.suppress(InvalidUpdateError, DamagedStoreError, ValueError):
            found = parse_message(store.look(key, max_bytes=MAX_MESSAGE_BYTES + 1)[1])
            check_sender(found, expected)
            return found
    return None


def refuse_second(store: Store, message: UpdateMessage) -> NoReturn:
    """Refuse an update that differs from the one that was sent before; InvalidUpdateError."""
    # Kept for the operator, who sees at the seal that two processes send for one plant.
    key = _key(message, conflict_file(message.tensors_sha256))
    with contextlib.suppress(ConflictError):
        store.put_if_absent(key, message_bytes(message))
    raise InvalidUpdateError(
        f"client '{message.client_id}': a different update of round {message.round_num} was sent "
        "before; that one counts",
        Reason.CONFLICTING_UPDATE,
    )


def send_tensors(store: Store, message: UpdateMessage, data: bytes) -> None:
    """Write the tensors, beside another writer's if need be."""
    try:
        store.put_once(_key(message, TENSORS_FILE), data)
    except ConflictError:
        # Another writer's, or what an earlier attempt left: the message will name ours by digest.
        store.put_once(_key(message, spare_tensors_file(message.tensors_sha256)), data)


def send_message(store: Store, message: UpdateMessage, expected: ExpectedUpdate) -> bool:
    """Write the message; True: the same one was written in the meantime.

    Raises
    ------
    InvalidUpdateError
        With reason CONFLICTING_UPDATE.
    """
    try:
        store.put_if_absent(_key(message, MESSAGE_FILE), message_bytes(message))
    except ConflictError:
        sent = find_sent(store, message, expected)
        if sent is not None and same_update(sent.message, message):
            return True
        if sent is not None:
            refuse_second(store, message)
        # A stranger was first; the server takes the message that is signed.
        store.put_once(_key(message, conflict_file(message.tensors_sha256)), message_bytes(message))
    return False


def check_in_time(opened: Federation, message: UpdateMessage) -> None:
    """Refuse to give a receipt for an update that the seal overtook.

    Raises
    ------
    InvalidUpdateError
        With reason MISSED_DEADLINE.
    """
    state = opened.state()
    if (state.phase, state.round_num) == (Phase.OPEN, message.round_num):
        return
    try:
        rows = opened.sealed_round(message.round_num).rows
    except RoundStateError:
        rows = ()
    if not any(r.client_id == message.client_id and r.verdict is Verdict.ACCEPTED for r in rows):
        raise InvalidUpdateError(
            f"client '{message.client_id}': round {message.round_num} was sealed while the update "
            "was on its way",
            Reason.MISSED_DEADLINE,
        )


def _key(message: UpdateMessage, file_name: str) -> str:
    return update_key(message.round_num, message.client_id, file_name)
