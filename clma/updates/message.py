"""``update.json``: strict reading and canonical writing of what a client says of its update.

Examples
--------
>>> message = UpdateMessage(
...     "f", "plant-a", 1, "ab" * 32, 100, False, "cd" * 32, "2026-01-01T00:00:00Z"
... )
>>> parse_message(message_bytes(message)) == message
True
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from clma.errors import InvalidUpdateError
from clma.ledger.keys import is_client_id, printable
from clma.records import UpdateMessage
from clma.updates.reasons import Reason

__all__ = ["MAX_MESSAGE_BYTES", "message_bytes", "parse_message", "same_update"]

MAX_MESSAGE_BYTES = 64 * 1024
MAX_EXAMPLES = 10**12
"""Far above any plant, and small enough that sums over a fleet stay exact in float64."""
MAX_TEXT_CHARS = 256
MAX_LOSSES = 256
"""Models that a client can have measured; more are never offered."""

_SCHEMA = 1
_REQUIRED = {
    "schema": int,
    "federation": str,
    "client_id": str,
    "round": int,
    "base_digest": str,
    "n_examples": int,
    "drift_flag": bool,
    "tensors_sha256": str,
    "created_at": str,
}
_OPTIONAL = {
    "confirm": bool,
    "loss": float,
    "losses": dict,
    "software": str,
    "signature": str,
}
_REASONS = {"n_examples": Reason.BAD_EXAMPLES, "client_id": Reason.BAD_CLIENT_ID}
_DIGEST = re.compile(r"[0-9a-f]{64}")


def message_bytes(message: UpdateMessage) -> bytes:
    """Write a message as canonical JSON; optional fields that are None are left out."""
    values: dict[str, Any] = {
        "schema": _SCHEMA,
        "federation": message.federation,
        "client_id": message.client_id,
        "round": message.round_num,
        "base_digest": message.base_digest,
        "n_examples": message.n_examples,
        "drift_flag": message.drift_flag,
        "confirm": message.confirm,
        "loss": message.loss,
        "losses": dict(message.losses) or None,
        "tensors_sha256": message.tensors_sha256,
        "created_at": message.created_at,
        "software": message.software or None,
        "signature": message.signature,
    }
    present = {key: value for key, value in values.items() if value is not None}
    text = json.dumps(present, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def parse_message(data: bytes) -> UpdateMessage:
    """Read a message; nothing in it is believed beyond its form.

    Parameters
    ----------
    data : bytes
        As it was found.

    Raises
    ------
    InvalidUpdateError
        With reason BAD_METADATA, BAD_EXAMPLES or BAD_CLIENT_ID.
    """
    values = _load(data)
    _check_keys(values)
    if values["schema"] != _SCHEMA:
        _refuse(f"schema is {values['schema']}, wanted {_SCHEMA}")
    if not is_client_id(values["client_id"]):
        _refuse(
            f"client_id '{printable(values['client_id'])}' is not allowed", Reason.BAD_CLIENT_ID
        )
    if not 0 <= values["n_examples"] <= MAX_EXAMPLES:
        _refuse("n_examples is out of range, wanted 0 to 10^12", Reason.BAD_EXAMPLES)
    if not 0 <= values["round"] < 10**9:
        _refuse("round is out of range")
    for key in ("base_digest", "tensors_sha256"):
        if not _DIGEST.fullmatch(values[key]):
            _refuse(f"{key} is not 64 hexadecimal digits in lower case")
    _check_time(values["created_at"])
    _check_losses(values.get("losses", {}))
    loss = values.get("loss")
    return UpdateMessage(
        federation=values["federation"],
        client_id=values["client_id"],
        round_num=values["round"],
        base_digest=values["base_digest"],
        n_examples=values["n_examples"],
        drift_flag=values["drift_flag"],
        tensors_sha256=values["tensors_sha256"],
        created_at=values["created_at"],
        confirm=values.get("confirm"),
        loss=None if loss is None else float(loss),
        software=values.get("software", ""),
        signature=values.get("signature"),
        losses={digest: float(value) for digest, value in values.get("losses", {}).items()},
    )


def same_update(one: UpdateMessage, two: UpdateMessage) -> bool:
    """Tell whether two messages say the same, whenever and by whatever they were written."""
    return _content(one) == _content(two)


def _content(message: UpdateMessage) -> tuple[object, ...]:
    return (
        message.federation,
        message.client_id,
        message.round_num,
        message.base_digest,
        message.n_examples,
        message.drift_flag,
        message.tensors_sha256,
        message.confirm,
        message.loss,
        message.losses,
    )


def _refuse(detail: str, reason: Reason = Reason.BAD_METADATA) -> NoReturn:
    raise InvalidUpdateError(f"update.json: {detail}", reason)


def _load(data: bytes) -> Mapping[str, Any]:
    if len(data) > MAX_MESSAGE_BYTES:
        _refuse(f"{len(data)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    try:
        values = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        _refuse(f"not JSON as wanted: {printable(str(error))}")
    if not isinstance(values, dict):
        _refuse(f"a JSON {type(values).__name__}, wanted an object")
    return values


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _check_keys(values: Mapping[str, Any]) -> None:
    known = {**_REQUIRED, **_OPTIONAL}
    missing = sorted(set(_REQUIRED) - set(values))
    unknown = sorted(set(values) - set(known))
    if missing or unknown:
        named = printable(", ".join(unknown)) or "none"
        _refuse(f"missing keys: {', '.join(missing) or 'none'}; unknown keys: {named}")
    for key, value in values.items():
        reason = _REASONS.get(key, Reason.BAD_METADATA)
        if not _has_type(value, known[key]):
            _refuse(f"{key} is a {type(value).__name__}, wanted {known[key].__name__}", reason)
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            _refuse(f"{key} has {len(value)} characters, at most {MAX_TEXT_CHARS} are read", reason)


def _has_type(value: object, wanted: type) -> bool:
    # In Python True is an int, and 1e999 is read as infinity; neither is what a client meant.
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    return type(value) is wanted


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


def _check_losses(losses: Mapping[str, Any]) -> None:
    if len(losses) > MAX_LOSSES:
        _refuse(f"losses of {len(losses)} models, at most {MAX_LOSSES} are read")
    if not all(_DIGEST.fullmatch(digest) for digest in losses):
        _refuse("losses has a key that is not 64 hexadecimal digits in lower case")
    if not all(_has_type(value, float) for value in losses.values()):
        _refuse("losses has a value that is no finite number")


def _check_time(text: str) -> None:
    try:
        zone = dt.datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None or "T" not in text:
        _refuse(f"created_at '{printable(text)}' is not RFC 3339 with a zone")
