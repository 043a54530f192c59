"""Run a federation's nights by schedule, for as long as this process lives.

    python -m deployments.serve --store federations/plants --federation plants
    python -m deployments.serve --store s3://bucket/plants --federation plants --cron "30 1 * * *"

One process is enough: without ``PREFECT_API_URL`` it brings a Prefect server of its own, on port
4200 if that is free. Nights do not overlap; one that finds another running waits for it.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import typer

from clma.errors import ClmaError, InvalidConfigError
from clma.ledger.federation import Federation
from deployments._lost_runs import mark_lost_runs
from deployments._servers import signals_as_exit
from flows._prefect_server import prefect_server

__all__ = ["ServeRequest", "checked", "serve_nightly"]

ROOT = Path(__file__).parents[1]
PREFECT_PORT = 4200


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What is served.

    Parameters
    ----------
    store : str
        Folder or URL of the federation.
    federation : str
    cron : str
        When a night begins: minute, hour, day of month, month, day of week.
    timezone : str
        IANA name, so that two in the morning stays that in summer and in winter.
    tracking_uri : str or None
        MLflow store to publish to; None: ``MLFLOW_TRACKING_URI``, or the project's own.
    """

    store: str
    federation: str
    cron: str = "0 2 * * *"
    timezone: str = "Europe/Berlin"
    tracking_uri: str | None = None

    @property
    def parameters(self) -> dict[str, str | None]:
        """Parameters of every run."""
        return {
            "store": self.store,
            "federation": self.federation,
            "tracking_uri": self.tracking_uri,
        }


def checked(request: ServeRequest) -> ServeRequest:
    """Return a request that can be served, with the absolute place of its store.

    Raises
    ------
    ClmaError
        If the store holds no such federation.
    InvalidConfigError
        If the schedule says nothing.
    """
    if len(request.cron.split()) != 5:
        raise InvalidConfigError(f"cron {request.cron!r}: wanted five fields, such as '0 2 * * *'")
    try:
        ZoneInfo(request.timezone)
    except (ValueError, OSError, LookupError):
        raise InvalidConfigError(
            f"time zone {request.timezone!r}: wanted an IANA name, such as 'Europe/Berlin'"
        ) from None
    Federation.open(request.store, request.federation)
    # One letter before the colon is a Windows drive, not a scheme.
    is_url = len(urlsplit(request.store).scheme) > 1
    return replace(request, store=request.store if is_url else str(Path(request.store).resolve()))


def serve_nightly(request: ServeRequest) -> None:
    """Serve the nightly flow until the process is told to stop; Prefect has to be there.

    Raises
    ------
    InvalidConfigError
        If Prefect does not understand the schedule.
    """
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.schedules import Cron

    from flows.nightly import nightly

    try:
        CronSchedule(cron=request.cron, timezone=request.timezone)
    except ValueError:
        raise InvalidConfigError(f"cron {request.cron!r}: no such time") from None
    mark_lost_runs()
    nightly.serve(
        name=request.federation,
        description=f"Nights of {request.federation} in {request.store}",
        schedule=Cron(request.cron, timezone=request.timezone),
        parameters=request.parameters,
        global_limit=ConcurrencyLimitConfig(
            limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
        ),
        print_starting_message=False,
    )


def _main(
    store: Annotated[str, typer.Option("--store", help="Folder or object-store URL.")],
    federation: Annotated[str, typer.Option("--federation", help="Name of the federation.")],
    cron: Annotated[str, typer.Option("--cron", help="When a night begins.")] = "0 2 * * *",
    timezone: Annotated[
        str, typer.Option("--timezone", help="Of the schedule, as an IANA name.")
    ] = "Europe/Berlin",
    tracking_uri: Annotated[
        str | None, typer.Option("--tracking-uri", help="MLflow store; default: the project's own.")
    ] = None,
) -> None:
    """Run a federation's nights by schedule until Ctrl-C."""
    try:
        request = checked(ServeRequest(store, federation, cron, timezone, tracking_uri))
        # Ctrl-C is left to Prefect, which then stops a night that runs in order.
        with signals_as_exit(signal.SIGTERM, signal.SIGHUP):
            _serve_from_root(request)
    except ClmaError as error:
        typer.echo(f"failed: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


def _serve_from_root(request: ServeRequest) -> None:
    # Every night is a process of its own, which has to find flows and tasks from anywhere.
    os.chdir(ROOT)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with prefect_server(ROOT / ".prefect", port=PREFECT_PORT) as api:
        typer.echo(
            f"nightly/{request.federation}: {request.cron!r} {request.timezone}; "
            f"pages {api.removesuffix('/api')}, Ctrl-C ends this",
            err=True,
        )
        serve_nightly(request)


if __name__ == "__main__":  # Prefect starts processes that import this module again.
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(
        epilog="Example: python -m deployments.serve --store federations/demo --federation demo"
    )(_main)
    app()
