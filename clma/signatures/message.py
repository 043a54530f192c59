"""What a client says of a signature of its data: whose, made by which encoder, of which tensors.

Examples
--------
>>> said = SignatureMessage(
...     federation="north",
...     client_id="plant-1",
...     kind="fmcl",
...     encoder="ab" * 32,
...     tensors_sha256="cd" * 32,
...     created_at="2026-01-05T20:00:00+00:00",
... )
>>> parse_message(message_bytes(said)) == said
True
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from clma.errors import InvalidUpdateError
from clma.ledger.entry import canonical_json
from clma.ledger.keys import is_client_id, printable
from clma.records import ClientKey
from clma.updates.reasons import Reason
from clma.updates.signing import SigningKey, check_signed, signature_text

__all__ = [
    "MAX_MESSAGE_BYTES",
    "SignatureMessage",
    "check_signer",
    "message_bytes",
    "parse_message",
    "same_signature",
    "signed_by",
]

MAX_MESSAGE_BYTES = 16 * 1024
_PURPOSE = b"clma data signature 1\n"


def _client_id(text: str) -> str:
    if not is_client_id(text):
        raise ValueError("not an allowed id")
    return text


def _time(text: str) -> str:
    if "T" not in text or dt.datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("not RFC 3339 with a zone")
    return text


_Text = Annotated[str, Field(max_length=256)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SignatureMessage(BaseModel):
    """The message beside the tensors of a signature.

    Parameters
    ----------
    federation : str
    client_id : str
    kind : str
        How the arrays were made.
    encoder : str
        Fingerprint of the frozen encoder.
    tensors_sha256 : str
        Of the file that holds the arrays.
    created_at : str
        RFC 3339 with a zone; decides nothing.
    software : str
    ed25519 : str or None
        Who says so: Base64 of 64 bytes.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    federation: _Text
    client_id: Annotated[_Text, AfterValidator(_client_id)]
    kind: _Text
    encoder: _Text
    tensors_sha256: _Digest
    created_at: Annotated[_Text, AfterValidator(_time)]
    software: _Text = ""
    ed25519: _Text | None = None


def message_bytes(message: SignatureMessage) -> bytes:
    """Write a message as canonical JSON; without the key's signature if there is none."""
    return canonical_json(message.model_dump(by_alias=True, exclude_none=True))


def parse_message(data: bytes) -> SignatureMessage:
    """Read a message; nothing in it is believed beyond its form.

    Raises
    ------
    InvalidUpdateError
        With reason BAD_METADATA; names the field.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidUpdateError(
            f"message of {len(data)} bytes, at most {MAX_MESSAGE_BYTES} are read",
            Reason.BAD_METADATA,
        )
    try:
        return SignatureMessage.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = printable(".".join(map(str, first["loc"]))) or "text"
        raise InvalidUpdateError(
            f"message: {where}: {printable(first['msg'], 200)}", Reason.BAD_METADATA
        ) from None


def same_signature(one: SignatureMessage, two: SignatureMessage) -> bool:
    """Tell whether two messages say the same, whenever and by whatever they were written."""
    return _content(one) == _content(two)


def _content(message: SignatureMessage) -> dict[str, object]:
    return message.model_dump(exclude={"created_at", "software", "ed25519"})


def signed_by(message: SignatureMessage, key: SigningKey) -> SignatureMessage:
    """Return the message with a client's signature under it."""
    return message.model_copy(update={"ed25519": signature_text(key, _unsigned(message))})


def check_signer(message: SignatureMessage, keys: Sequence[ClientKey]) -> None:
    """Accept a message that one of the client's valid keys signed, and no other.

    Raises
    ------
    InvalidUpdateError
        With reason NOT_SIGNED, BAD_SIGNATURE or KEY_REVOKED.
    """
    check_signed(
        _unsigned(message),
        message.client_id,
        message.ed25519,
        keys,
        what="message of its data signature",
    )


def _unsigned(message: SignatureMessage) -> bytes:
    return _PURPOSE + message_bytes(message.model_copy(update={"ed25519": None}))
