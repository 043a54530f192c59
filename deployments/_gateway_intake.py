"""Take an update in for a plant: what `submit` would write, after the same checks."""

from __future__ import annotations

import threading
from pathlib import Path

from clma.client.access import Terms, check_round_open
from clma.client.delivery import check_in_time, find_sent, refuse_second, send_message
from clma.errors import InvalidUpdateError
from clma.ledger.federation import Federation
from clma.ledger.inbox import spare_tensors_file
from clma.ledger.keys import inbox_prefix, update_key
from clma.records import Phase, UpdateMessage
from clma.updates.message import parse_message, same_update
from clma.updates.reasons import Reason
from clma.updates.validation import check_base, check_sender, check_tensors
from deployments._gateway_errors import NotTakenError

__all__ = ["check_room", "commit_message", "has_tensors", "keep_tensors"]

_storing = threading.Lock()
"""Held while tensors are in memory as a whole: one upload at a time."""


def has_tensors(federation: Federation, round_num: int, client_id: str, digest: str) -> bool:
    """Tell whether tensors of this digest came through the gateway."""
    return federation.store.exists(_tensors_key(round_num, client_id, digest))


def check_room(
    federation: Federation, terms: Terms, round_num: int, client_id: str, most: int
) -> None:
    """Refuse tensors of another round, or too many files of them.

    Raises
    ------
    InvalidUpdateError
        With reason STALE_ROUND, FUTURE_ROUND or MISSED_DEADLINE.
    NotTakenError
        If the plant left so many files in the round already.
    """
    expected = terms.expected
    if round_num != expected.round_num:
        reason = Reason.FUTURE_ROUND if round_num > expected.round_num else Reason.STALE_ROUND
        raise InvalidUpdateError(
            f"client '{client_id}': update of round {round_num}, open is {expected.round_num}",
            reason,
        )
    if terms.phase is not Phase.OPEN:
        raise InvalidUpdateError(
            f"client '{client_id}': round {round_num} is {terms.phase.value} already",
            Reason.MISSED_DEADLINE,
        )
    names = federation.store.list(f"{inbox_prefix(round_num)}/{client_id}")
    n_files = sum(name.endswith(".safetensors") for name in names)
    if n_files >= most:
        raise NotTakenError(
            f"client '{client_id}': {n_files} files of tensors were sent for round {round_num}, at "
            f"most {most} are kept",
            409,
        )


def keep_tensors(
    federation: Federation, terms: Terms, client_id: str, digest: str, path: Path
) -> None:
    """Check tensors and put them into the inbox under their digest; without a message no vote.

    Raises
    ------
    InvalidUpdateError
        With the reason that the seal would give.
    """
    expected = terms.expected
    check_tensors(path, expected)
    with _storing:
        federation.store.put_once(
            _tensors_key(expected.round_num, client_id, digest), path.read_bytes()
        )


def commit_message(federation: Federation, terms: Terms, data: bytes) -> bool | None:
    """Put a message into the inbox if its tensors are there.

    Returns
    -------
    bool or None
        False: the update is sent. True: the same one had been sent before. None: nothing was
        written, the tensors are wanted first.

    Raises
    ------
    InvalidUpdateError
        With its reason.
    """
    message = parse_message(data)
    check_sender(message, terms.expected)
    store = federation.store
    sent = find_sent(store, message, terms.expected)
    if sent is not None and same_update(sent.message, message):
        store.make_durable(sent.key)
        return True
    check_round_open(message, terms)
    check_base(message, terms.expected)
    if sent is not None:
        refuse_second(store, message)
    if not _are_there(federation, message):
        return None
    duplicate = send_message(store, message, terms.expected)
    check_in_time(federation, message)
    return duplicate


def _are_there(federation: Federation, message: UpdateMessage) -> bool:
    return has_tensors(federation, message.round_num, message.client_id, message.tensors_sha256)


def _tensors_key(round_num: int, client_id: str, digest: str) -> str:
    return update_key(round_num, client_id, spare_tensors_file(digest))
