"""Send a trained model and one flag; nothing else leaves the plant.

Tensors first, then the message as commit marker. Nothing is written over, so that of two writers
exactly one counts, and a crash in between is repaired by submitting again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from clma import __version__
from clma.client.pull import PulledModel, find_client, open_federation, read_note
from clma.errors import (
    ConflictError,
    InvalidUpdateError,
    MissingObjectError,
    RoundStateError,
)
from clma.ledger.federation import Federation
from clma.ledger.inbox import (
    MESSAGE_FILE,
    TENSORS_FILE,
    conflict_file,
    expected_update,
    spare_tensors_file,
)
from clma.ledger.keys import update_key
from clma.ledger.refusals import refusals_named
from clma.ledger.store import Store, file_digest
from clma.records import FederationState, Phase, UpdateMessage
from clma.rows import Verdict
from clma.updates.message import message_bytes, parse_message, same_update
from clma.updates.reasons import Reason
from clma.updates.signing import SigningKey, load_key, sign_message
from clma.updates.validation import (
    ExpectedUpdate,
    check_base,
    check_message,
    check_sender,
    check_tensors,
)

__all__ = ["SubmitReceipt", "submit"]

_NOT_READABLE = UpdateMessage("", "", 0, "", 0, False, "", "")
"""Stands for a message that cannot be read: it is there, and equals none."""


@dataclass(frozen=True, slots=True)
class SubmitReceipt:
    """What was sent.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
    digest : str
        SHA-256 of the tensors.
    duplicate : bool
        The same update had been sent before; nothing was written.
    notes : tuple of str
        What the plant should know: a field that was left out, zero examples.
    """

    federation: str
    client_id: str
    round_num: int
    digest: str
    duplicate: bool = False
    notes: tuple[str, ...] = ()


def submit(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    *,
    tensors: Path,
    n_examples: int,
    drift_flag: bool,
    confirm: bool | None = None,
    loss: float | None = None,
    losses: Mapping[str, float] | None = None,
    round_num: int | None = None,
    base_digest: str | None = None,
    pulled: PulledModel | None = None,
    key: SigningKey | Path | None = None,
    now: dt.datetime | None = None,
    checked: bool = True,
) -> SubmitReceipt:
    """Send a client's update of the open round.

    Parameters
    ----------
    url : str, Path or Federation
        The store, or the federation where it is open already.
    federation : str
        Its name.
    client_id : str
    tensors : Path
        The trained model as safetensors: names, shapes and dtypes of the model that was pulled.
    n_examples : int, >= 0
        Examples that it was trained on.
    drift_flag : bool
    confirm : bool, optional
        Only where `pull` gave a cohort to confirm: is that cohort's model still bad here?
    loss : float, optional
        Stays here unless the federation's policy shares it.
    losses : mapping of digest to float, optional
        Mean loss of every model of choice on fresh data, before training; stays here unless the
        federation's policy shares it (`loss_vector`).
    round_num, base_digest : optional
        Round and model that were trained on. Default: what `pulled`, or else the note beside
        `tensors`, says; without both, the open round and the model that the client is served.
    pulled : PulledModel, optional
        What `pull` returned.
    key : SigningKey or Path, optional
        The client's private key or its file; a federation that takes signed updates wants it.
    now : datetime, optional
        With a zone; only written down.
    checked : bool
        False: it is sent unseen, for whoever passes on what others trained. The server judges it in
        any case, and its refusal is then on record.

    Returns
    -------
    SubmitReceipt
        Submitting the same again changes nothing.

    Raises
    ------
    InvalidUpdateError
        With its reason: what the server would refuse is refused here, before anything is sent.
    RoundStateError
        If no round was opened yet.
    InvalidConfigError
        If the key's file holds none.
    UnknownClientError, UnknownFederationError
        If the names are not known.
    """
    opened = open_federation(url, federation)
    state = opened.state()
    expected = expected_update(state, find_client(state, client_id), opened.config, opened.spec)
    facts = pulled or _note_of(tensors, federation, client_id)
    if round_num is None:
        round_num = facts.round_num if facts else state.round_num
    if base_digest is None:
        base_digest = facts.base_digest if facts else expected.base_digest
    message = UpdateMessage(
        federation=state.federation,
        client_id=client_id,
        round_num=int(round_num),
        base_digest=base_digest,
        n_examples=int(n_examples),
        drift_flag=bool(drift_flag),
        tensors_sha256=_digest_of(tensors),
        created_at=(now or dt.datetime.now(dt.UTC)).isoformat(),
        confirm=confirm,
        loss=None if loss is None else float(loss),
        software=f"clma {__version__}",
        losses={digest: float(value) for digest, value in (losses or {}).items()},
    )
    message, notes = _keep_private(message, expected)
    if key is not None:
        message = sign_message(message, load_key(key) if isinstance(key, Path) else key)
    receipt = SubmitReceipt(
        state.federation, client_id, message.round_num, message.tensors_sha256, notes=notes
    )
    recorded = _recorded(opened.store, message, expected)
    if recorded is not None and same_update(recorded, message):
        # The attempt before may have failed for the very reason that it was not on the disk yet.
        opened.store.make_durable(_key(message, MESSAGE_FILE))
        return replace(receipt, duplicate=True)
    with refusals_named("read", tensors.name, str(tensors.parent)):
        if checked:
            _check(message, tensors, state, expected)
        data = tensors.read_bytes()
    if recorded is not None:
        _refuse_second(opened.store, message)
    _send_tensors(opened.store, message, data)
    duplicate = _send_message(opened.store, message, expected)
    _check_in_time(opened, message)
    return replace(receipt, duplicate=duplicate)


def _note_of(tensors: Path, federation: str, client_id: str) -> PulledModel | None:
    note = read_note(tensors)
    if note is None or (note.federation, note.client_id) != (federation, client_id):
        return None
    return note


def _digest_of(tensors: Path) -> str:
    try:
        return file_digest(tensors)
    except OSError as error:
        raise InvalidUpdateError(f"{tensors}: {error.strerror}", Reason.INCOMPLETE) from None


def _keep_private(
    message: UpdateMessage, expected: ExpectedUpdate
) -> tuple[UpdateMessage, tuple[str, ...]]:
    notes = []
    if message.loss is not None and "loss" not in expected.share:
        message = replace(message, loss=None)
        notes.append("the loss was not sent: the federation's policy does not share it")
    if message.losses and "loss_vector" not in expected.share:
        message = replace(message, losses={})
        notes.append("the losses were not sent: the federation's policy does not share them")
    if "flag" not in expected.share and (message.drift_flag or message.confirm is not None):
        message = replace(message, drift_flag=False, confirm=None)
        notes.append("the flag was not sent: the federation's policy does not share it")
    if message.n_examples == 0:
        notes.append("0 examples: the update will be used with weight 0")
    return message, tuple(notes)


def _check(
    message: UpdateMessage, tensors: Path, state: FederationState, expected: ExpectedUpdate
) -> None:
    if state.phase is Phase.CREATED:
        raise RoundStateError(f"federation {state.federation!r} has not opened a round yet")
    parse_message(message_bytes(message))
    _check_own_signature(message, expected)
    check_message(message, expected)
    if state.phase is not Phase.OPEN:
        raise InvalidUpdateError(
            f"client '{message.client_id}': round {state.round_num} is {state.phase.value} already",
            Reason.MISSED_DEADLINE,
        )
    check_tensors(tensors, expected)
    check_base(message, expected)


def _check_own_signature(message: UpdateMessage, expected: ExpectedUpdate) -> None:
    try:
        check_sender(message, expected)
    except InvalidUpdateError as error:
        hint = {
            Reason.NOT_SIGNED: "give --key; 'clma client keygen' makes a key",
            Reason.BAD_SIGNATURE: "is its public key registered? 'clma key list' shows",
        }.get(Reason(error.reason or ""))
        if hint is None:
            raise
        raise InvalidUpdateError(f"{error}; {hint}", error.reason) from None


def _key(message: UpdateMessage, file_name: str) -> str:
    return update_key(message.round_num, message.client_id, file_name)


def _recorded(
    store: Store, message: UpdateMessage, expected: ExpectedUpdate
) -> UpdateMessage | None:
    """Return what was sent for this client and round before, by the client itself."""
    spare = (conflict_file(message.tensors_sha256),) if expected.signed else ()
    for name in (MESSAGE_FILE, *spare):
        try:
            found = parse_message(store.get(_key(message, name)))
            check_sender(found, expected)
        except MissingObjectError:
            continue
        except InvalidUpdateError:
            # What anybody else dropped there does not count where updates are signed.
            if not expected.signed:
                return _NOT_READABLE
            continue
        if name == MESSAGE_FILE or same_update(found, message):
            return found
    return None


def _refuse_second(store: Store, message: UpdateMessage) -> NoReturn:
    # Kept for the operator, who sees at the seal that two processes send for one plant.
    key = _key(message, conflict_file(message.tensors_sha256))
    with contextlib.suppress(ConflictError):
        store.put_if_absent(key, message_bytes(message))
    raise InvalidUpdateError(
        f"client '{message.client_id}': a different update of round {message.round_num} was sent "
        "before; that one counts",
        Reason.CONFLICTING_UPDATE,
    )


def _send_tensors(store: Store, message: UpdateMessage, data: bytes) -> None:
    try:
        store.put_once(_key(message, TENSORS_FILE), data)
    except ConflictError:
        # Another writer's, or what an earlier attempt left: the message will name ours by digest.
        store.put_once(_key(message, spare_tensors_file(message.tensors_sha256)), data)


def _send_message(store: Store, message: UpdateMessage, expected: ExpectedUpdate) -> bool:
    try:
        store.put_if_absent(_key(message, MESSAGE_FILE), message_bytes(message))
    except ConflictError:
        recorded = _recorded(store, message, expected)
        if recorded is not None and same_update(recorded, message):
            return True
        if recorded is not None:
            _refuse_second(store, message)
        # A stranger was first; the server takes the message that is signed.
        store.put_once(_key(message, conflict_file(message.tensors_sha256)), message_bytes(message))
    return False


def _check_in_time(opened: Federation, message: UpdateMessage) -> None:
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
