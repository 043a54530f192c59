"""A gateway in front of a small federation, and plants that ask it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.parameters.tensor_file import serialize_tensors
from clma.records import UpdateMessage
from clma.updates.message import message_bytes
from clma.updates.request_signing import NO_BODY, authorize
from clma.updates.signing import SigningKey, sign_message
from deployments._gateway_app import create_app
from deployments._gateway_guard import GatewayLimits
from deployments._gateway_protocol import server_of
from tests.clma.ledger.fleet import NOW, model, written

CLIENTS = ("p0", "p1", "p2")


def key_of(client_id: str) -> SigningKey:
    """Return a plant's key."""
    return SigningKey.from_seed(hashlib.sha256(client_id.encode()).digest())


def signed_fleet(
    url: str | Path, folder: Path, tensors: Mapping[str, Any] | None = None, **settings: Any
) -> Federation:
    """Create federation `fleet`, which takes signed updates, and open round 1."""
    base = written(folder / "base.safetensors", tensors or model())
    keys = {client_id: key_of(client_id).public for client_id in CLIENTS}
    config = preset_config("fleet", **settings)
    federation = Federation.create(url, config, base, CLIENTS, public_keys=keys, now=NOW)
    federation.open_round(now=NOW)
    return federation


@dataclass
class Site:
    """A gateway without a network, and the time that it believes it is."""

    federation: Federation
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    now: dt.datetime = NOW
    app: FastAPI = field(init=False)

    def __post_init__(self) -> None:
        self.app = create_app(self.federation, limits=self.limits, clock=lambda: self.now)

    def request(self, method: str, target: str, **fields: Any) -> Response:
        """Send a request as it is."""

        async def answer() -> Response:
            transport = ASGITransport(self.app, raise_app_exceptions=False)
            async with AsyncClient(transport=transport, base_url="http://gateway") as http:
                return await http.request(method, target, **fields)

        return asyncio.run(answer())

    def ask(
        self,
        client_id: str,
        page: str,
        body: bytes | None = None,
        *,
        method: str | None = None,
        key: SigningKey | None = None,
        headers: dict[str, str] | None = None,
        federation: str = "fleet",
        **signed: Any,
    ) -> Response:
        """Ask as a plant does; keywords go to what is signed."""
        method = method or ("GET" if body is None else "PUT")
        target = f"/v1/federations/{federation}/clients/{client_id}/{page}"
        sha256 = NO_BODY if body is None else hashlib.sha256(body).hexdigest()
        proof = authorize(
            key or key_of(client_id),
            method,
            target,
            **{"now": self.now, "sha256": sha256, **signed},
        )
        return self.request(
            method, target, content=body, headers={"Authorization": proof, **(headers or {})}
        )

    def send(self, client_id: str, tensors: bytes, message: bytes) -> list[Response]:
        """Send an update as the protocol has it: tensors, then the message."""
        digest = hashlib.sha256(tensors).hexdigest()
        round_num = self.federation.state().round_num
        return [
            self.ask(client_id, f"rounds/{round_num}/tensors/{digest}", tensors),
            self.ask(client_id, "update", message),
        ]


@contextlib.contextmanager
def on_loopback(app: FastAPI, **tls: Path) -> Iterator[str]:
    """Serve a gateway on a free port; its address."""
    server = server_of(app, **tls)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http{'s' * bool(tls)}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def raw(url: str, text: bytes) -> bytes:
    """Send bytes as they are and wait until the gateway closes the line; what it said."""
    found = b""
    host, _, port = url.removeprefix("http://").strip("/").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(text)
        while piece := line.recv(65536):
            found += piece
    return found


def head_of(client_id: str, page: str, body: bytes, *, size: int) -> bytes:
    """Return the head of a signed upload that says its body has so many bytes."""
    target = f"/v1/federations/fleet/clients/{client_id}/{page}"
    now = dt.datetime.now(dt.UTC)
    sha256 = hashlib.sha256(body).hexdigest()
    proof = authorize(key_of(client_id), "PUT", target, now=now, sha256=sha256)
    lines = (
        f"PUT {target} HTTP/1.1",
        "Host: gateway",
        f"Authorization: {proof}",
        f"Content-Length: {size}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def trained(shift: float = 0.5) -> bytes:
    """Return the file of a trained model."""
    return serialize_tensors(model(shift))


def message_of(
    fleet: Federation, sender: str, tensors: bytes, signer: str | None = None, **fields: Any
) -> bytes:
    """Return a signed message of an update of the open round."""
    state = fleet.state()
    values: dict[str, Any] = {
        "federation": "fleet",
        "client_id": sender,
        "round_num": state.round_num,
        "base_digest": state.clients[sender].serving_digest,
        "n_examples": 100,
        "drift_flag": False,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
        "created_at": "2026-01-05T21:00:00+00:00",
        **fields,
    }
    return message_bytes(sign_message(UpdateMessage(**values), key_of(signer or sender)))
