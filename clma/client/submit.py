"""Send a trained model and one flag; nothing else leaves the plant.

Tensors first, then the message as commit marker. Nothing is written over, so that of two writers
exactly one counts, and a crash in between is repaired by submitting again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clma import __version__
from clma.client.access import Access, Terms, given_key
from clma.client.patience import patiently
from clma.client.pull import PulledModel, read_note
from clma.client.reach import is_gateway, reach
from clma.errors import InvalidUpdateError
from clma.ledger.federation import Federation
from clma.ledger.store import file_digest
from clma.records import UpdateMessage
from clma.updates.reasons import Reason
from clma.updates.signing import SigningKey, sign_message
from clma.updates.validation import ExpectedUpdate

__all__ = ["SubmitReceipt", "submit"]


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
    attempts: int = 3,
) -> SubmitReceipt:
    """Send a client's update of the open round.

    Parameters
    ----------
    url : str, Path or Federation
        The store, the address of a gateway (``https://...``), or the federation where it is open
        already.
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
        The client's private key or its file; a federation that takes signed updates wants it, and
        so does a gateway. Default: the file that ``CLMA_CLIENT_KEY`` names.
    now : datetime, optional
        With a zone; only written down.
    checked : bool
        False: it is sent unseen, for whoever passes on what others trained. The server judges it in
        any case, and its refusal is then on record.
    attempts : int, >= 1
        How often a store that does not answer is asked; a gateway is asked six times in any case.

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
    StorageError
        If the store cannot be reached; to try it again later is always right.
    """
    key = given_key(key)
    attempts = 1 if is_gateway(url) else attempts
    access, terms = patiently(
        lambda: _terms(reach(url, federation, client_id, key=key)), attempts=attempts
    )
    expected = terms.expected
    facts = pulled or _note_of(tensors, federation, client_id)
    if round_num is None:
        round_num = facts.round_num if facts else expected.round_num
    if base_digest is None:
        base_digest = facts.base_digest if facts else expected.base_digest
    message = UpdateMessage(
        federation=expected.federation,
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
        message = sign_message(message, key)
    # Sending the same again changes nothing, so that it can be tried as often as one likes.
    duplicate = patiently(
        lambda: access.deliver(message, tensors, terms, checked=checked), attempts=attempts
    )
    return SubmitReceipt(
        expected.federation,
        client_id,
        message.round_num,
        message.tensors_sha256,
        duplicate,
        notes,
    )


def _terms(access: Access) -> tuple[Access, Terms]:
    return access, access.terms()


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
