"""A deployed model's plant asks for a round before its time (CLMA, Algorithm 4).

A few hundred bytes, signed under a purpose of their own, in one written form: of what says the
same there is one file.

Examples
--------
>>> asked = RoundRequest("f", "plant-a", 7, "ab" * 32, "loss", "2026-01-01T10:00:00+00:00")
>>> parse_request(request_bytes(asked)) == asked
True
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from dataclasses import dataclass
from typing import Annotated, NoReturn

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from clma.errors import InvalidUpdateError
from clma.ledger.keys import is_client_id, printable
from clma.records import ClientKey
from clma.updates.reasons import Reason
from clma.updates.signing import SigningKey, check_signed, signature_text

__all__ = [
    "MAX_REQUEST_BYTES",
    "RoundRequest",
    "check_request_signature",
    "parse_request",
    "request_bytes",
    "sign_request",
]

MAX_REQUEST_BYTES = 4096

_PURPOSE = b"clma round request 1\n"
_SCHEMA = 1


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What a plant says when it asks.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
        The round that is open, and is to be closed.
    base_digest : str
        The deployed model, which is bad now.
    measure : str
        What said so: ``loss`` or the name of a surrogate; for the operator's eye. Its value stays
        at the plant.
    created_at : str
        RFC 3339 with a zone; decides nothing.
    signature : str or None
    """

    federation: Annotated[str, Field(max_length=64)]
    client_id: Annotated[str, Field(max_length=64)]
    round_num: Annotated[int, Field(ge=1, lt=10**9)]
    base_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    measure: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    created_at: Annotated[str, Field(max_length=64)]
    signature: Annotated[str, Field(max_length=128)] | None = None


_REQUEST = TypeAdapter(RoundRequest)


def request_bytes(request: RoundRequest) -> bytes:
    """Write a request as canonical JSON; a signature that is None is left out."""
    values = {"schema": _SCHEMA, **dataclasses.asdict(request)}
    values["round"] = values.pop("round_num")
    present = {key: value for key, value in values.items() if value is not None}
    return json.dumps(present, sort_keys=True, separators=(",", ":")).encode()


def parse_request(data: bytes) -> RoundRequest:
    """Read a request; nothing in it is believed beyond its form.

    Raises
    ------
    InvalidUpdateError
        With reason BAD_METADATA or BAD_CLIENT_ID.
    """
    if len(data) > MAX_REQUEST_BYTES:
        _refuse(f"{len(data)} bytes, at most {MAX_REQUEST_BYTES} are read")
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or values.pop("schema", None) != _SCHEMA:
            _refuse(f"no JSON object of schema {_SCHEMA}")
        values["round_num"] = values.pop("round", None)
        request = _REQUEST.validate_json(json.dumps(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        _refuse(f"{printable(place)}: {first['msg']}")
    except (ValueError, RecursionError) as error:
        _refuse(f"not JSON as wanted: {printable(str(error))}")
    if not is_client_id(request.client_id):
        _refuse(f"client_id '{printable(request.client_id)}' is not allowed", Reason.BAD_CLIENT_ID)
    _check_time(request.created_at)
    if request_bytes(request) != data:
        _refuse("not in canonical form, as clma writes it")
    return request


def sign_request(request: RoundRequest, key: SigningKey) -> RoundRequest:
    """Return the request with its signature."""
    return dataclasses.replace(request, signature=signature_text(key, _signed_bytes(request)))


def check_request_signature(request: RoundRequest, keys: tuple[ClientKey, ...]) -> None:
    """Accept a request that one of the client's valid keys signed; InvalidUpdateError."""
    data = _signed_bytes(request)
    check_signed(data, request.client_id, request.signature, keys, what="request")


def _signed_bytes(request: RoundRequest) -> bytes:
    return _PURPOSE + request_bytes(dataclasses.replace(request, signature=None))


def _check_time(text: str) -> None:
    try:
        zone = dt.datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        _refuse(f"created_at '{printable(text)}' is not RFC 3339 with a zone")


def _refuse(detail: str, reason: Reason = Reason.BAD_METADATA) -> NoReturn:
    raise InvalidUpdateError(f"request: {detail}", reason)
