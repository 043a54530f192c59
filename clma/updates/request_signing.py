"""Signed HTTP requests: a plant proves to a gateway who it is, request by request.

The signature covers method, path with query, the SHA-256 of the body, time and nonce, under a
purpose of its own: what was signed as a request can never pass as an update, nor the other way
round. There is no session and no password, so nothing that could be stolen from the gateway.

Examples
--------
>>> key = SigningKey.from_seed(bytes(32))
>>> header = authorize(key, "GET", "/v1/f/p/terms", now=dt.datetime(2026, 1, 5, tzinfo=dt.UTC))
>>> proof = parse_authorization(header)
>>> signer_of_request(proof, "GET", "/v1/f/p/terms", [ClientKey(key.public)]) is not None
True
>>> signer_of_request(proof, "PUT", "/v1/f/p/terms", [ClientKey(key.public)]) is None
True
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from clma.errors import UnauthorizedError
from clma.ledger.keys import printable
from clma.records import ClientKey
from clma.updates.signing import SigningKey, signature_text, signer_of

__all__ = ["NO_BODY", "RequestProof", "authorize", "parse_authorization", "signer_of_request"]

NO_BODY = hashlib.sha256(b"").hexdigest()
"""Digest of a body that is empty or absent."""

SCHEME = "CLMA-Ed25519"
MAX_HEADER_CHARS = 512

_PURPOSE = b"clma request 1\n"
_FORM = re.compile(
    rf"{SCHEME} time=(\d{{1,12}}), nonce=([0-9a-f]{{32}}), sha256=([0-9a-f]{{64}}), "
    r"signature=([A-Za-z0-9+/]{86}==)"
)


@dataclass(frozen=True, slots=True)
class RequestProof:
    """What a request's ``Authorization`` says, before anything of it was believed.

    Parameters
    ----------
    time_s : int
        When it was signed, in seconds since 1970, by the plant's clock.
    nonce : str
        32 hexadecimal digits that no other request of the plant has.
    sha256 : str
        Digest of the body.
    signature : str
        In Base64.
    """

    time_s: int
    nonce: str
    sha256: str
    signature: str

    def signed_bytes(self, method: str, target: str) -> bytes:
        """Return what the signature is over."""
        lines = (method, target, self.sha256, str(self.time_s), self.nonce)
        return _PURPOSE + "\n".join(lines).encode()


def authorize(
    key: SigningKey,
    method: str,
    target: str,
    *,
    now: dt.datetime,
    sha256: str = NO_BODY,
    nonce: str | None = None,
) -> str:
    """Return the ``Authorization`` header of a request.

    Parameters
    ----------
    key : SigningKey
    method : str
        In capitals.
    target : str
        Path and query below the gateway's address.
    now : datetime
        With a zone.
    sha256 : str
        Digest of the body.
    nonce : str, optional
        Default: a random one.
    """
    proof = RequestProof(int(now.timestamp()), nonce or secrets.token_hex(16), sha256, "")
    signature = signature_text(key, proof.signed_bytes(method, target))
    return (
        f"{SCHEME} time={proof.time_s}, nonce={proof.nonce}, sha256={sha256}, signature={signature}"
    )


def parse_authorization(header: str | None) -> RequestProof:
    """Read an ``Authorization`` header.

    Raises
    ------
    UnauthorizedError
        If there is none, or it has another form.
    """
    if not header:
        raise UnauthorizedError(f"the request is not signed, wanted Authorization: {SCHEME} ...")
    found = _FORM.fullmatch(header) if len(header) <= MAX_HEADER_CHARS else None
    if found is None:
        raise UnauthorizedError(
            f"Authorization is '{printable(header)}', wanted '{SCHEME} time=..., nonce=..., "
            "sha256=..., signature=...'"
        )
    return RequestProof(int(found[1]), found[2], found[3], found[4])


def signer_of_request(
    proof: RequestProof, method: str, target: str, keys: Sequence[ClientKey]
) -> ClientKey | None:
    """Return which of a client's keys, revoked ones too, signed a request; None if none did."""
    return signer_of(proof.signature, proof.signed_bytes(method, target), keys)
