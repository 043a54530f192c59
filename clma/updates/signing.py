"""Ed25519 signatures over what a client says: who said it, and of which tensors.

A message holds the digest of its tensors, so its signature covers them, too. Public keys are
written ``ed25519:`` and Base64; private keys are PEM files (PKCS #8) that never leave the plant.

Examples
--------
>>> import pathlib, tempfile
>>> path = pathlib.Path(tempfile.mkdtemp()) / "plant.key"
>>> key = create_key(path)
>>> key.public.startswith("ed25519:"), len(fingerprint(key.public))
(True, 16)
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from clma.errors import ConflictError, InvalidConfigError, InvalidUpdateError
from clma.ledger.keys import printable
from clma.records import ClientKey, UpdateMessage
from clma.updates.message import message_bytes
from clma.updates.reasons import Reason

__all__ = [
    "SigningKey",
    "check_public_key",
    "check_signature",
    "check_signed",
    "create_key",
    "fingerprint",
    "load_key",
    "sign_message",
    "signature_text",
    "signer_of",
]

# A signature that was made over these bytes can never be taken for one over something else.
_PURPOSE = b"clma update 1\n"
_SCHEME = "ed25519:"
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_MAX_FILE_BYTES = 64 * 1024


class SigningKey:
    """A client's private key; nothing that prints or logs it shows more than its public half.

    Parameters
    ----------
    private : Ed25519PrivateKey
    """

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = _SCHEME + _text(private.public_key().public_bytes_raw())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """Return the key of 32 secret bytes; for simulations and tests, which must repeat."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 bytes."""
        return self._private.sign(data)

    def __repr__(self) -> str:
        return f"SigningKey({fingerprint(self.public)})"

    def __reduce__(self) -> str:
        raise TypeError("a private key is not written anywhere but to its own file")


def create_key(path: Path) -> SigningKey:
    """Make a key and write its private half to a file that only its owner can read.

    Raises
    ------
    ConflictError
        If the file is there already: a key is never written over.
    """
    private = Ed25519PrivateKey.generate()
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConflictError(f"{path} is there already; a key is never written over") from None
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    return SigningKey(private)


def load_key(path: Path) -> SigningKey:
    """Read a private key.

    Raises
    ------
    InvalidConfigError
        If the file cannot be read or holds no unencrypted ed25519 key. Never shows its content.
    """
    try:
        with path.open("rb") as handle:
            data = handle.read(_MAX_FILE_BYTES)
        private = load_pem_private_key(data, password=None)
    except OSError as error:
        raise InvalidConfigError(f"key {path}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise InvalidConfigError(
            f"key {path} is no unencrypted ed25519 key in PEM; 'clma client keygen' makes one"
        )
    return SigningKey(private)


def check_public_key(text: str) -> str:
    """Return a public key as it is registered.

    Raises
    ------
    InvalidConfigError
        If it is none.
    """
    raw = _raw(text.removeprefix(_SCHEME)) if text.startswith(_SCHEME) else None
    if raw is None or len(raw) != _KEY_BYTES:
        raise InvalidConfigError(
            f"public key '{printable(text)}': wanted {_SCHEME} and 32 bytes in Base64, "
            "as 'clma client keygen' prints it"
        )
    return _SCHEME + _text(raw)


def fingerprint(public: str) -> str:
    """Return 16 hexadecimal digits that name a public key."""
    return hashlib.sha256(check_public_key(public).encode()).hexdigest()[:16]


def sign_message(message: UpdateMessage, key: SigningKey) -> UpdateMessage:
    """Return the message with its signature."""
    signature = signature_text(key, _PURPOSE + _unsigned(message))
    return dataclasses.replace(message, signature=signature)


def signature_text(key: SigningKey, data: bytes) -> str:
    """Return a key's signature of `data` in Base64."""
    return _text(key.sign(data))


def signer_of(signature: str, data: bytes, keys: Sequence[ClientKey]) -> ClientKey | None:
    """Return which of the keys, revoked ones too, signed `data`; None if none did."""
    raw = _raw(signature)
    if raw is None or len(raw) != _SIGNATURE_BYTES:
        return None
    return next((key for key in keys if _verifies(key.public, raw, data)), None)


def check_signature(message: UpdateMessage, keys: Sequence[ClientKey]) -> None:
    """Accept a message that one of the client's valid keys signed, and no other.

    Parameters
    ----------
    message : UpdateMessage
    keys : sequence of ClientKey
        Of the client that the message has to be of, revoked ones too.

    Raises
    ------
    InvalidUpdateError
        With reason NOT_SIGNED, BAD_SIGNATURE or KEY_REVOKED.
    """
    check_signed(_PURPOSE + _unsigned(message), message.client_id, message.signature, keys)


def check_signed(
    data: bytes,
    client_id: str,
    signature: str | None,
    keys: Sequence[ClientKey],
    *,
    what: str = "update",
) -> None:
    """Accept bytes that one of a client's valid keys signed, and no others.

    Parameters
    ----------
    data : bytes
        What the signature is over, its purpose first.
    client_id : str
        Whose they have to be.
    signature : str or None
        In Base64.
    keys : sequence of ClientKey
        Of the client, revoked ones too.
    what : str
        For messages.

    Raises
    ------
    InvalidUpdateError
        With reason NOT_SIGNED, BAD_SIGNATURE or KEY_REVOKED.
    """
    whose = f"client '{printable(client_id)}'"
    if signature is None:
        raise InvalidUpdateError(
            f"{whose}: the {what} is not signed, this federation takes signed ones only",
            Reason.NOT_SIGNED,
        )
    raw = _raw(signature)
    if raw is None or len(raw) != _SIGNATURE_BYTES:
        raise InvalidUpdateError(
            f"{whose}: the signature is not 64 bytes in Base64", Reason.BAD_SIGNATURE
        )
    signer = signer_of(signature, data, keys)
    if signer is None:
        known = ", ".join(fingerprint(k.public) for k in keys if k.revoked_round is None)
        raise InvalidUpdateError(
            f"{whose}: no registered key made the signature; keys of the client: {known or 'none'}",
            Reason.BAD_SIGNATURE,
        )
    if signer.revoked_round is not None:
        raise InvalidUpdateError(
            f"{whose}: signed with key {fingerprint(signer.public)}, which was revoked in round "
            f"{signer.revoked_round}",
            Reason.KEY_REVOKED,
        )


def _unsigned(message: UpdateMessage) -> bytes:
    return message_bytes(dataclasses.replace(message, signature=None))


def _verifies(public: str, signature: bytes, data: bytes) -> bool:
    raw = _raw(public.removeprefix(_SCHEME))
    try:
        Ed25519PublicKey.from_public_bytes(raw or b"").verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _raw(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
