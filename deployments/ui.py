"""Look at what was made: Prefect and MLflow in the browser, on this machine's own databases.

    python -m deployments.ui
    python -m deployments.ui --out /tmp/demo --prefect-port 4300

Both servers listen on loopback only and end with the command.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from clma.errors import ClmaError
from deployments._servers import (
    Server,
    ServerError,
    free_port,
    mlflow_server,
    prefect_server,
    running,
    signals_as_exit,
    wait_until_up,
)
from tasks.mlflow_pages import ROUNDS_VIEW, experiment_page

__all__ = ["Pages", "find_pages", "show"]

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the two pages are, or will be once `servers` run.

    Parameters
    ----------
    prefect, mlflow : str
        Addresses without a slash at the end.
    servers : tuple of Server
        Those that have to be started.
    remarks : tuple of str
        What a person should know first.
    """

    prefect: str
    mlflow: str
    servers: tuple[Server, ...]
    remarks: tuple[str, ...]


def find_pages(root: Path, prefect_port: int, mlflow_port: int) -> Pages:
    """Decide what to start: nothing where ``PREFECT_API_URL`` or ``MLFLOW_TRACKING_URI`` name one.

    Parameters
    ----------
    root : Path
        Folder that holds ``.prefect/`` and ``mlruns/``.
    prefect_port, mlflow_port : int
        Ports to take; the next free ones if they are taken.

    Raises
    ------
    ServerError
        If there is nothing to look at yet.
    """
    root = root.resolve()
    servers: list[Server] = []
    remarks: list[str] = []
    prefect = (os.environ.get("PREFECT_API_URL") or "").rstrip("/").removesuffix("/api")
    if prefect:
        remarks.append(f"Prefect: using {prefect} (PREFECT_API_URL)")
    tracking = os.environ.get("MLFLOW_TRACKING_URI") or ""
    mlflow = tracking.rstrip("/") if tracking.startswith(("http://", "https://")) else ""
    if mlflow:
        remarks.append(f"MLflow: using {mlflow} (MLFLOW_TRACKING_URI)")
    elif not tracking and not (root / "mlruns" / "mlflow.db").exists():
        raise ServerError(f"nothing to look at in {root}: run `make demo` first")
    if not prefect:
        port = _port("Prefect", prefect_port, remarks)
        servers.append(prefect_server(root / ".prefect", port))
        prefect = servers[-1].address
    if not mlflow:
        port = _port("MLflow", mlflow_port, remarks)
        backend = tracking or f"sqlite:///{(root / 'mlruns' / 'mlflow.db').as_posix()}"
        servers.append(mlflow_server(backend, root / "mlruns", port))
        mlflow = servers[-1].address
    return Pages(prefect, mlflow, tuple(servers), tuple(remarks))


def show(pages: Pages) -> None:
    """Start what has to be started, say where to look, and wait until one of the servers ends.

    Raises
    ------
    ServerError
        If a server does not start, or ends by itself.
    """
    for remark in pages.remarks:
        typer.echo(remark, err=True)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(server)) for server in pages.servers]
        if started:
            names = " and ".join(s.server.name for s in started)
            typer.echo(f"starting {names}, up to a minute the first time ...", err=True)
            wait_until_up(started)
        typer.echo(f"Prefect, every night as a run:  {pages.prefect}/runs")
        typer.echo(f"MLflow, every round as a run:   {_newest_experiment(pages.mlflow)}")
        if started:
            typer.echo("Ctrl-C ends this.", err=True)
            while True:
                for one in started:
                    one.check()
                time.sleep(0.5)


def _port(name: str, wanted: int, remarks: list[str]) -> int:
    port = free_port(wanted)
    if port != wanted:
        remarks.append(
            f"{name}: port {wanted} is taken, using {port}; links in earlier runs say {wanted}"
        )
    return port


def _newest_experiment(mlflow: str) -> str:
    """Return the page of the experiment that was made last, or of all of them."""
    request = urllib.request.Request(  # noqa: S310 - http by construction
        f"{mlflow}/api/2.0/mlflow/experiments/search",
        data=json.dumps({"max_results": 1, "order_by": ["creation_time DESC"]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            newest = json.load(answer)["experiments"][0]
        has_view = ROUNDS_VIEW in {tag["key"] for tag in newest.get("tags", ())}
        return experiment_page(mlflow, newest["experiment_id"], has_view=has_view)
    except (OSError, ValueError, LookupError):
        # The page is there even where asking needs a login.
        return f"{mlflow}/#/experiments"


def _main(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the demo; default: the project.")
    ] = None,
    prefect_port: Annotated[
        int, typer.Option("--prefect-port", min=1, max=65535, help="The next free one if taken.")
    ] = 4200,
    mlflow_port: Annotated[
        int, typer.Option("--mlflow-port", min=1, max=65535, help="The next free one if taken.")
    ] = 5000,
) -> None:
    """Show Prefect and MLflow in the browser until Ctrl-C."""
    try:
        with signals_as_exit():
            show(find_pages(out or ROOT, prefect_port, mlflow_port))
    except ClmaError as error:
        typer.echo(f"failed: {error}", err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(epilog="Example: python -m deployments.ui --out /tmp/demo")(_main)
    app()
