"""Send a signature of a plant's data, so that it starts among plants whose data look alike.

What leaves the plant is one vector and one number a class, once; see `clma.signatures.fmcl`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from pathlib import Path

from clma import __version__
from clma.client.direct import find_client, open_federation
from clma.client.reach import is_gateway
from clma.errors import InvalidConfigError, InvalidUpdateError, PolicyError
from clma.ledger.federation import Federation
from clma.ledger.keys import signature_key
from clma.ledger.signatures import newest_message
from clma.ledger.store import Store
from clma.signatures.file import signature_bytes
from clma.signatures.message import (
    SignatureMessage,
    check_signer,
    message_bytes,
    same_signature,
    signed_by,
)
from clma.signatures.signature import Signature
from clma.updates.signing import SigningKey, load_key

__all__ = ["SignatureReceipt", "send_signature"]


@dataclass(frozen=True, slots=True)
class SignatureReceipt:
    """What was sent.

    Parameters
    ----------
    federation, client_id : str
    digest : str
        SHA-256 of the tensors.
    encoder : str
        Fingerprint of what turned samples into embeddings.
    n_classes, n_features, size_bytes : int
        Of what left the plant.
    duplicate : bool
        The same signature had been sent before; nothing was written.
    notes : tuple of str
        What the plant should know.
    """

    federation: str
    client_id: str
    digest: str
    encoder: str
    n_classes: int
    n_features: int
    size_bytes: int
    duplicate: bool = False
    notes: tuple[str, ...] = ()


def send_signature(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    signature: Signature,
    *,
    key: SigningKey | Path | None = None,
    now: dt.datetime | None = None,
) -> SignatureReceipt:
    """Send a signature of a client's data; the newest one counts when the client is placed.

    Parameters
    ----------
    url : str, Path or Federation
        The store, or the federation where it is open already.
    federation : str
        Its name.
    client_id : str
    signature : Signature
        From `clma.signatures.fmcl.sign_by_class_means`.
    key : SigningKey or Path, optional
        The client's private key or its file; a federation that takes signed updates wants it.
    now : datetime, optional
        With a zone; only written down.

    Returns
    -------
    SignatureReceipt
        Sending the same again changes nothing.

    Raises
    ------
    PolicyError
        If the federation does not place clients by signatures, or not by this kind.
    InvalidUpdateError
        What the server would refuse is refused here, before anything is sent.
    InvalidConfigError
        If the key's file holds none, or the address is a gateway's.
    UnknownClientError, UnknownFederationError
        If the names are not known.
    """
    if is_gateway(url):
        raise InvalidConfigError(
            f"gateway {url} passes no signatures of data on: send to the store itself, or have "
            "somebody who reaches it send"
        )
    opened = open_federation(url, federation)
    state, config = opened.state(), opened.config
    client = find_client(state, client_id)
    _check_wanted(opened, signature)
    try:
        data = signature_bytes(signature)
    except InvalidUpdateError as error:
        raise InvalidUpdateError(f"client '{client_id}': {error}", error.reason) from None
    message = SignatureMessage(
        federation=state.federation,
        client_id=client_id,
        kind=signature.kind,
        encoder=signature.encoder,
        tensors_sha256=hashlib.sha256(data).hexdigest(),
        created_at=(now or dt.datetime.now(dt.UTC)).isoformat(),
        software=f"clma {__version__}",
    )
    if key is not None:
        message = signed_by(message, load_key(key) if isinstance(key, Path) else key)
    if config.identity.updates == "signed":
        check_signer(message, state.keys.get(client_id, ()))
    newest = newest_message(opened.store, state, config, client_id)
    duplicate = newest is not None and same_signature(newest.message, message)
    if not duplicate:
        opened.store.put_once(signature_key(client_id, message.tensors_sha256, "safetensors"), data)
        _put_message(opened.store, message)
    notes: tuple[str, ...] = ()
    if client.signature_round is not None:
        notes = (
            f"{client_id} was placed for round {client.signature_round} already: this counts if "
            "the operator forms the cohorts anew",
        )
    n_classes, n_features = signature.arrays["means"].shape
    return SignatureReceipt(
        state.federation,
        client_id,
        message.tensors_sha256,
        signature.encoder,
        n_classes,
        n_features,
        len(data),
        duplicate,
        notes,
    )


def _check_wanted(opened: Federation, signature: Signature) -> None:
    config = opened.config
    kind = config.onboarding.method
    if kind == "none":
        raise PolicyError(
            f"federation {opened.name!r} does not place clients by signatures "
            "(onboarding.method is 'none'); nothing was sent"
        )
    if signature.kind != kind:
        raise PolicyError(
            f"federation {opened.name!r} places clients by signatures of kind {kind!r}, "
            f"this is one of kind {signature.kind!r}; nothing was sent"
        )
    wanted = config.onboarding.encoder
    if wanted and signature.encoder != wanted:
        raise InvalidUpdateError(
            f"signature was made with encoder {signature.encoder[:12]!r}, federation "
            f"{opened.name!r} wants {wanted[:12]!r} (onboarding.encoder)"
        )


def _put_message(store: Store, message: SignatureMessage) -> None:
    data = message_bytes(message)
    store.put_once(signature_key(message.client_id, hashlib.sha256(data).hexdigest(), "json"), data)
