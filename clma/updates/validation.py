"""The gate: the only code that looks into tensors and messages from outside.

The server runs it when a round is sealed, the client before it sends, so that a plant learns at
once what the server would say in the night. Checks go from cheap to dear; the first that fails
names the reason. One goes against that order: a model that was replaced by one of another shape is
more to know than that it is old, so the tensors are looked at before what they were trained from.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from clma.errors import InvalidUpdateError
from clma.ledger.keys import printable
from clma.parameters.tensor_file import (
    FLOAT_DTYPES,
    MAX_MAGNITUDE,
    TensorFile,
    TensorFileError,
    TensorLimits,
    count_unusable,
)
from clma.records import ArtifactRef, ClientKey, SealedUpdate, TensorSpec, UpdateMessage
from clma.updates.reasons import Reason
from clma.updates.signing import check_signature

__all__ = [
    "CheckedUpdate",
    "ExpectedUpdate",
    "admit",
    "check_base",
    "check_digest",
    "check_message",
    "check_sender",
    "check_size",
    "check_tensors",
    "limits_for",
]

_CHUNK = 1 << 20
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class ExpectedUpdate:
    """What the federation's state says of a client's update.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
        The open round.
    base_digest : str
        Model that the client was sent.
    other_bases : tuple of str
        Further models that it may have chosen to train.
    specs : tuple of TensorSpec
        Of the federation's model.
    share : tuple of str
        ``privacy.share``.
    signed : bool
        Only messages that one of `keys` signed are believed.
    keys : tuple of ClientKey
        Of the client.
    max_clock_skew_hours : float
        Difference between the client's clock and the store's from which on it is noted.
    """

    federation: str
    client_id: str
    round_num: int
    base_digest: str
    specs: tuple[TensorSpec, ...]
    share: tuple[str, ...]
    signed: bool = False
    keys: tuple[ClientKey, ...] = ()
    max_clock_skew_hours: float = 24.0
    other_bases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedUpdate:
    """An update that may be used.

    Parameters
    ----------
    update : SealedUpdate
        Without what the policy does not share.
    notes : tuple of (Reason, str)
        What the operator should know of it.
    """

    update: SealedUpdate
    notes: tuple[tuple[Reason, str], ...] = field(default=())


def check_sender(message: UpdateMessage, expected: ExpectedUpdate) -> None:
    """Refuse a message that is not the client's own; before that nothing in it is believed.

    Raises
    ------
    InvalidUpdateError
        With reason BAD_CLIENT_ID, NOT_SIGNED, BAD_SIGNATURE or KEY_REVOKED.
    """
    if message.client_id != expected.client_id:
        _refuse(
            expected, Reason.BAD_CLIENT_ID, f"message is of client '{printable(message.client_id)}'"
        )
    if expected.signed:
        check_signature(message, expected.keys)


def check_message(message: UpdateMessage, expected: ExpectedUpdate) -> None:
    """Refuse a message of another federation or round; InvalidUpdateError."""
    if message.federation != expected.federation:
        got = printable(message.federation)
        _refuse(
            expected, Reason.BAD_METADATA, f"federation '{got}', wanted '{expected.federation}'"
        )
    if message.round_num != expected.round_num:
        early = message.round_num > expected.round_num
        reason = Reason.FUTURE_ROUND if early else Reason.STALE_ROUND
        _refuse(
            expected, reason, f"update of round {message.round_num}, open is {expected.round_num}"
        )


def check_base(message: UpdateMessage, expected: ExpectedUpdate) -> None:
    """Refuse an update of another model than was sent, after its tensors; InvalidUpdateError."""
    if message.base_digest not in {expected.base_digest, *expected.other_bases}:
        others = f" and {len(expected.other_bases)} more" if expected.other_bases else ""
        _refuse(
            expected,
            Reason.STALE_BASE,
            f"trained from model {message.base_digest[:12]}, "
            f"was sent {expected.base_digest[:12]}{others}",
        )


def check_digest(found: str, message: UpdateMessage, expected: ExpectedUpdate) -> None:
    """Compare the digest of the tensors with the message's; InvalidUpdateError if they differ."""
    if found != message.tensors_sha256:
        _refuse(
            expected,
            Reason.DIGEST_MISMATCH,
            f"tensors have {found[:12]}, message says {message.tensors_sha256[:12]}",
        )


def check_size(size_bytes: int, expected: ExpectedUpdate) -> None:
    """Refuse tensors that are too large to be read; InvalidUpdateError with reason BAD_FORMAT."""
    if size_bytes > (limit := limits_for(expected.specs).file_bytes):
        _refuse(
            expected, Reason.BAD_FORMAT, f"tensors of {size_bytes} bytes, at most {limit} are read"
        )


def check_tensors(path: Path, expected: ExpectedUpdate) -> None:
    """Check a file of tensors against the federation's model.

    Parameters
    ----------
    path : Path
        Read in pieces, never mapped: somebody may shorten it while it is looked at. What is read
        after the check is what was checked only if nobody else can write it.
    expected : ExpectedUpdate

    Raises
    ------
    InvalidUpdateError
        With reason BAD_FORMAT, NAMES_MISMATCH, DTYPE_UNSUPPORTED, DTYPE_MISMATCH, SHAPE_MISMATCH or
        NON_FINITE.
    """
    limits = limits_for(expected.specs)
    check_size(path.stat().st_size, expected)
    try:
        with TensorFile(path, limits=limits, mapped=False) as file:
            _check_specs(file.specs, expected)
            _check_finite(file, expected)
    except TensorFileError as error:
        reason = Reason.DTYPE_UNSUPPORTED if error.unsupported_dtype else Reason.BAD_FORMAT
        _refuse(expected, reason, printable(str(error), 300))


def admit(
    message: UpdateMessage,
    expected: ExpectedUpdate,
    tensors: ArtifactRef,
    received_at: dt.datetime | None = None,
) -> CheckedUpdate:
    """Turn a checked message into a sealed update, without what the policy does not share.

    Parameters
    ----------
    message : UpdateMessage
    expected : ExpectedUpdate
    tensors : ArtifactRef
        The copy that was checked.
    received_at : datetime, optional
        By the store's clock.
    """
    notes: list[tuple[Reason, str]] = []
    if message.n_examples == 0:
        notes.append((Reason.ZERO_EXAMPLES, "0 examples, used with weight 0"))
    hidden = []
    if message.loss is not None and "loss" not in expected.share:
        hidden.append("loss")
    shares_losses = "loss_vector" in expected.share
    if message.losses and not shares_losses:
        hidden.append("loss_vector")
    shares_flag = "flag" in expected.share
    if not shares_flag and (message.drift_flag or message.confirm is not None):
        hidden.append("flag")
    if hidden:
        notes.append(
            (Reason.NOT_SHARED, f"dropped: privacy.share does not name {', '.join(hidden)}")
        )
    skew = _clock_skew(message, received_at)
    if abs(skew) > dt.timedelta(hours=expected.max_clock_skew_hours):
        hours = skew / dt.timedelta(hours=1)
        notes.append((Reason.CLOCK_SKEW, f"the client's clock is {hours:+.1f} h off the store's"))
    update = SealedUpdate(
        client_id=message.client_id,
        base_digest=message.base_digest,
        tensors=tensors,
        n_examples=message.n_examples,
        drift_flag=message.drift_flag and shares_flag,
        confirm=message.confirm if shares_flag else None,
        loss=message.loss if "loss" in expected.share else None,
        losses=message.losses if shares_losses else {},
    )
    return CheckedUpdate(update, tuple(notes))


def _clock_skew(message: UpdateMessage, received_at: dt.datetime | None) -> dt.timedelta:
    if received_at is None:
        return dt.timedelta(0)
    return dt.datetime.fromisoformat(message.created_at) - received_at


@lru_cache(maxsize=4)
def limits_for(specs: tuple[TensorSpec, ...]) -> TensorLimits:
    """Return the sizes to decode for a model of these specs.

    Every element may be of the widest dtype, the header may be written at length and say more in
    its metadata, and there may be some surplus tensors: a file of another model must still be told
    by its names, dtypes and shapes. What is far beyond that is not decoded, so that no file costs
    more than a few times what an honest one does.
    """
    n_values = sum(math.prod(s.shape) for s in specs)
    n_marks = sum(8 + len(s.shape) + sum(map(s.name.count, "[{,")) for s in specs)
    n_chars = sum(64 + 20 * (2 + len(s.shape)) + 6 * len(s.name) for s in specs)
    most = TensorLimits()
    return TensorLimits(
        file_bytes=8 * n_values + 16 * 2**20,
        header_bytes=min(most.header_bytes, 2 * n_chars + 2**20),
        header_marks=min(most.header_marks, 2 * n_marks + 2**16),
        n_tensors=min(most.n_tensors, 2 * len(specs) + 1000),
    )


def _check_specs(found: Sequence[TensorSpec], expected: ExpectedUpdate) -> None:
    got = {s.name: s for s in found}
    wanted = {s.name: s for s in expected.specs}
    missing, extra = sorted(set(wanted) - set(got)), sorted(set(got) - set(wanted))
    if missing or extra:
        prefixed = extra and {n.removeprefix("module.") for n in extra} == set(missing)
        hint = "; strip the 'module.' prefix that DataParallel adds" if prefixed else ""
        _refuse(
            expected,
            Reason.NAMES_MISMATCH,
            f"missing tensors: {_some(missing)}; surplus: {_some(extra)}{hint}",
        )
    for name, spec in wanted.items():
        shown = printable(name)
        if got[name].dtype != spec.dtype:
            detail = f"tensor '{shown}' is {got[name].dtype}, wanted {spec.dtype}"
            _refuse(expected, Reason.DTYPE_MISMATCH, detail)
        if got[name].shape != spec.shape:
            detail = f"tensor '{shown}': expected {list(spec.shape)} got {list(got[name].shape)}"
            _refuse(expected, Reason.SHAPE_MISMATCH, detail)


def _check_finite(file: TensorFile, expected: ExpectedUpdate) -> None:
    for spec in file.specs:
        if spec.dtype not in FLOAT_DTYPES:
            continue
        n_bad = sum(map(count_unusable, file.blocks(spec.name, _CHUNK)))
        if n_bad:
            noun = "value" if n_bad == 1 else "values"
            kind = f"NaN, infinite or beyond {MAX_MAGNITUDE:g}"
            detail = f"tensor '{printable(spec.name)}' has {n_bad} {noun} that are {kind}"
            _refuse(expected, Reason.NON_FINITE, detail)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_MAX_NAMES])
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (shown or "none") + more


def _refuse(expected: ExpectedUpdate, reason: Reason, detail: str) -> NoReturn:
    raise InvalidUpdateError(f"client '{expected.client_id}': {detail}", reason)
