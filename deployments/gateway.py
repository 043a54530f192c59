"""Serve one federation's plants over HTTP: those that cannot reach its store.

    python -m deployments.gateway --store fleet --federation north
    python -m deployments.gateway --store s3://bucket/north --federation north --port 8443 \\
      --tls-certificate gateway.pem --tls-key gateway.key

Bound to this machine unless it is told otherwise; TLS by a proxy in front, or by the two options.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from clma.errors import ClmaError, InvalidConfigError, MissingExtraError
from clma.ledger.federation import Federation
from deployments._servers import HOST

__all__ = ["GatewayRequest", "serve_gateway"]


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """What is served, and where.

    Parameters
    ----------
    store : str
        Folder or URL of the federation.
    federation : str or None
        Its name; None: the one that is there.
    host : str
        Address to listen on.
    port : int
        0: a free one.
    tls_certificate, tls_key : Path or None
        PEM files; both or none.
    requests_per_minute : float
        Of one plant.
    """

    store: str
    federation: str | None = None
    host: str = HOST
    port: int = 8440
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    requests_per_minute: float = 120.0


def serve_gateway(request: GatewayRequest) -> None:
    """Serve until the process is told to stop.

    Raises
    ------
    ClmaError
        If the store holds no such federation, or the address cannot be taken.
    InvalidConfigError
        If only one of the two TLS files is given, or they cannot be used.
    MissingExtraError
        If ``clma[gateway]`` is not installed.
    """
    try:
        from deployments._gateway_app import create_app
        from deployments._gateway_guard import GatewayLimits
        from deployments._gateway_protocol import server_of
    except ImportError as error:
        raise MissingExtraError(f"{error}: install clma[gateway]") from None
    if (request.tls_certificate is None) != (request.tls_key is None):
        raise InvalidConfigError("TLS wants both --tls-certificate and --tls-key, or none")
    opened = Federation.open(request.store, request.federation)
    app = create_app(opened, limits=GatewayLimits(requests_per_minute=request.requests_per_minute))
    try:
        server = server_of(app, certificate=request.tls_certificate, key=request.tls_key)
    except OSError as error:
        raise InvalidConfigError(f"TLS files cannot be used: {error}") from None
    with _listening(request.host, request.port) as listener:
        scheme = "http" if request.tls_certificate is None else "https"
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"gateway of {opened.name}: {scheme}://{shown}:{port}/, Ctrl-C ends this")
        server.run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ClmaError(f"{host}:{port} cannot be listened on: {error.strerror}") from None
    return listener


def _main(
    store: Annotated[str, typer.Option("--store", help="Folder or object-store URL.")],
    federation: Annotated[
        str | None, typer.Option("--federation", help="Name; default: the one that is there.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = HOST,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: a free one.")
    ] = 8440,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="PEM, with the chain.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="PEM.")] = None,
    requests_per_minute: Annotated[
        float, typer.Option("--requests-per-minute", min=1, help="Of one plant, in the long run.")
    ] = 120.0,
) -> None:
    """Serve the plants of one federation over HTTP until Ctrl-C."""
    request = GatewayRequest(
        store, federation, host, port, tls_certificate, tls_key, requests_per_minute
    )
    try:
        serve_gateway(request)
    except ClmaError as error:
        typer.echo(f"failed: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(
        epilog="Example: python -m deployments.gateway --store fleet --federation north --port 8440"
    )(_main)
    app()
