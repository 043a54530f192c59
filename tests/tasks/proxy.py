"""A server that can be taken away: a relay in front of a real one, with faults on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

UNAVAILABLE = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n"


class Proxy:
    """Relays connections to `target` while `fault` is None.

    Faults: ``refuse``, ``503``, ``hang`` (takes requests, never answers), ``cut`` (ends the
    connection in the middle of every upload) and ``cut-answer`` (lets uploads through, but never
    tells).
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._fault: str | None = None
        self._open: set[socket.socket] = set()
        self._muted: set[socket.socket] = set()
        self._listener = self._listen(0)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.n_connections = 0
        self.retry_after: int | None = 3600

    @property
    def fault(self) -> str | None:
        return self._fault

    @fault.setter
    def fault(self, fault: str | None) -> None:
        if self._fault == "refuse" and fault != "refuse":
            self._listener = self._listen(int(self.address.rpartition(":")[2]))
        self._fault = fault
        if fault == "refuse":
            _end(self._listener)
        for connection in list(self._open):
            _end(connection)

    def close(self) -> None:
        self.fault = "refuse"

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=[listener], daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.n_connections += 1
                self._open.add(client)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._fault == "hang":
            return
        if self._fault == "503":
            with contextlib.suppress(OSError):
                client.recv(65536)
                header = "" if self.retry_after is None else f"Retry-After: {self.retry_after}\r\n"
                client.sendall(f"{UNAVAILABLE}{header}\r\n".encode())
            _end(client)
            return
        server = socket.create_connection(self._target)
        self._open.add(server)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(
                target=self._relay, args=[source, sink, source is client], daemon=True
            ).start()

    def _relay(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        uploading = False
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_request and self._fault in {"cut", "cut-answer"} and data[:4] == b"PUT ":
                    uploading = True
                if uploading and self._fault == "cut":
                    # Headers and a piece of the body, at most.
                    sink.sendall(data[: data.find(b"\r\n\r\n") + 12])
                    break
                if uploading:
                    self._muted.add(source)
                if sink in self._muted:
                    break
                sink.sendall(data)
        _end(source)
        _end(sink)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def proxy_of(address: str) -> Iterator[Proxy]:
    """Provide a relay in front of a server's address."""
    host, _, port = address.removeprefix("http://").partition(":")
    proxy = Proxy((host, int(port)))
    try:
        yield proxy
    finally:
        proxy.close()
