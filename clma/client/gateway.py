"""A plant's way to a federation behind an HTTP gateway (`deployments/gateway.py`).

The same answers as from the store itself, and the same checks before anything is sent; what is
fetched is compared with its digest here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from clma.client.access import KEY_VARIABLE, Offer, PlantStatus, Terms, check_before_sending
from clma.client.line import Line
from clma.errors import ClmaError, InvalidConfigError, StorageError
from clma.ledger.keys import check_client_id
from clma.ledger.refusals import refusals_named
from clma.ledger.store import file_digest
from clma.records import UpdateMessage
from clma.updates.message import message_bytes
from clma.updates.round_request import RoundRequest, request_bytes
from clma.updates.signing import SigningKey

__all__ = ["GatewayAccess"]

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Receipt:
    tensors_wanted: bool
    duplicate: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    duplicate: bool


_OFFER = TypeAdapter(Offer)
_STATUS = TypeAdapter(PlantStatus)
_TERMS = TypeAdapter(Terms)
_RECEIPT = TypeAdapter(_Receipt)
_ASKED = TypeAdapter(_Asked)


class GatewayAccess:
    """Asks a gateway, with signed requests.

    Parameters
    ----------
    url : str
        Address of the gateway.
    federation, client_id : str
    key : SigningKey or None
        The client's own.

    Raises
    ------
    InvalidConfigError
        If there is no key, or the address is not one to send weights to.
    UnknownClientError
        If the client's id is not allowed.
    """

    def __init__(self, url: str, federation: str, client_id: str, key: SigningKey | None) -> None:
        if key is None:
            raise InvalidConfigError(
                f"gateway {url} wants the key of client '{client_id}': give --key, or set "
                f"{KEY_VARIABLE} to its file"
            )
        self._line = Line(url, key)
        self._client_id = check_client_id(client_id)
        self._root = f"/v1/federations/{quote(federation, safe='')}/clients/{client_id}"

    def offer(self, *, drifted: bool = False) -> Offer:
        """Return what the client trains next; with `drifted`, after it raised its flag."""
        query = "?drifted=true" if drifted else ""
        return self._read(_OFFER, self._line.ask("GET", f"{self._root}/offer{query}"))

    def model(self, digest: str, *, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a model that was offered, from one on, unchecked."""
        data = self._line.ask("GET", f"{self._root}/models/{digest}", tag=f'"{digest}"')
        yield data[start:]

    def status(self) -> PlantStatus:
        """Return where the client stands."""
        return self._read(_STATUS, self._line.ask("GET", f"{self._root}/status"))

    def terms(self) -> Terms:
        """Return what the client's update has to be."""
        return self._read(_TERMS, self._line.ask("GET", f"{self._root}/terms"))

    def deliver(
        self, message: UpdateMessage, tensors: Path, terms: Terms, *, checked: bool = True
    ) -> bool:
        """Send an update; True: the same one had been sent before, and nothing was written.

        The message goes first, as a question: one that the gateway would refuse costs no upload.
        """
        data = message_bytes(message)
        receipt = self._send_message(data)
        if not receipt.tensors_wanted:
            return receipt.duplicate
        digest = message.tensors_sha256
        with refusals_named("read", tensors.name, str(tensors.parent)):
            if checked:
                check_before_sending(message, tensors, terms)
            if file_digest(tensors) != digest:
                raise StorageError(f"{tensors} was changed while it was sent; submit again")
        page = f"{self._root}/rounds/{message.round_num}/tensors/{digest}"
        self._line.ask("PUT", page, tensors, sha256=digest)
        receipt = self._send_message(data)
        if receipt.tensors_wanted:
            raise StorageError(f"gateway {self._line.url} lost what was sent; submit again")
        return receipt.duplicate

    def request(self, request: RoundRequest) -> bool:
        """Ask for a round; True: the client had asked before, and nothing was written."""
        data = request_bytes(request)
        digest = hashlib.sha256(data).hexdigest()
        answer = self._line.ask("PUT", f"{self._root}/request", data, sha256=digest)
        return self._read(_ASKED, answer).duplicate

    def _send_message(self, data: bytes) -> _Receipt:
        digest = hashlib.sha256(data).hexdigest()
        return self._read(
            _RECEIPT, self._line.ask("PUT", f"{self._root}/update", data, sha256=digest)
        )

    def _read(self, adapter: TypeAdapter[Found], data: bytes) -> Found:
        try:
            return adapter.validate_json(data)
        except ValidationError as error:
            first: Any = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ClmaError(
                f"gateway {self._line.url} answers what this version of clma does not know "
                f"({place}: {first['msg']}); install the gateway's version"
            ) from None
