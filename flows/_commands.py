"""What ``python -m flows.<name>`` does: options, a Prefect server, the flow, one line, a code.

Exit codes: 0 done, 1 failed or held, 2 wrong usage. Imports prefect only inside the commands, after
its settings stand.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from obstore.exceptions import BaseError as ObjectStoreError

from clma.errors import ClmaError, InvalidConfigError, RoundHeldError
from clma.ledger.federation import Federation
from flows._prefect_server import LAST_HAND_IN_TIMEOUT_S, hand_in, prefect_server

__all__ = [
    "failures_in_one_line",
    "noticed_interrupts",
    "one_line",
    "orchestrated",
    "run_command",
    "run_nightly_command",
    "run_publish_command",
    "show_committed",
    "what_now_after",
]

ROOT = Path(__file__).parents[1]

_AGAIN = "the same command goes on where this one stopped"

StoreOption = Annotated[str, typer.Option("--store", help="Folder or object-store URL.")]
NameOption = Annotated[str, typer.Option("--federation", help="Name of the federation.")]
TrackingOption = Annotated[
    str | None, typer.Option("--tracking-uri", help="MLflow store; default: the project's own.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@contextlib.contextmanager
def orchestrated(home: Path | None = None, *, port: int = 0) -> Iterator[str]:
    """Provide Prefect to what is run inside; all its state in `home` (default: the project).

    Yields
    ------
    str
        The API's URL.
    """
    # Quiet on the terminal only: what tasks log is for the run's page.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")
    # Of a server that is gone it would repeat every event that it cannot hand in, after the line
    # that an operator should read.
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
    # Six tries of a minute each are asked of a server that hangs, for each of many requests.
    os.environ.setdefault("PREFECT_API_REQUEST_TIMEOUT", "20")
    with prefect_server(home or ROOT / ".prefect", port=port) as url:
        yield url


@contextlib.contextmanager
def noticed_interrupts() -> Iterator[threading.Event]:
    """Remember an interrupt that somebody below swallowed.

    An interrupt that meets Prefect or asyncio at the wrong moment cancels a request and is gone;
    whoever loops over nights looks at the event after each of them. One that meets a destructor
    cannot be raised at all, and Python would print its traceback: it is noticed, that is enough.
    """
    noticed = threading.Event()

    def notice(_signal: int, _frame: object) -> NoReturn:
        noticed.set()
        raise KeyboardInterrupt

    def keep_quiet(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            show_lost(lost)

    before = signal.signal(signal.SIGINT, notice)
    show_lost, sys.unraisablehook = sys.unraisablehook, keep_quiet
    try:
        yield noticed
    finally:
        sys.unraisablehook = show_lost
        signal.signal(signal.SIGINT, before)


def one_line(error: BaseException) -> str:
    """Return an expected failure as one line for stderr."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def failures_in_one_line(
    *, wrong_setting: int = 1, what_now: Callable[[], str] = lambda: _AGAIN
) -> Iterator[None]:
    """Turn expected failures into one line on stderr and an exit code.

    Parameters
    ----------
    wrong_setting : int
        Exit code where the settings are to blame: 2 where the command line gave them.
    what_now : callable
        Says what to do after Prefect went away in the middle.

    Notes
    -----

    Expected are our own errors and those of the places a night depends on: disk, object store,
    MLflow, Prefect. Anything else is a bug and keeps its traceback.
    """
    try:
        yield
    except InvalidConfigError as error:
        word = "wrong usage" if wrong_setting == 2 else "failed"
        typer.echo(f"{word}: {one_line(error)}", err=True)
        raise typer.Exit(wrong_setting) from None
    except (ClmaError, OSError, ObjectStoreError) as error:
        word = "held" if isinstance(error, RoundHeldError) else "failed"
        typer.echo(f"{word}: {one_line(error)}", err=True)
        raise typer.Exit(1) from None
    except Exception as error:
        text = _outage(error, what_now)
        if text is None:
            raise
        typer.echo(f"failed: {text}", err=True)
        raise typer.Exit(1) from None


def _outage(error: Exception, what_now: Callable[[], str]) -> str | None:
    """Return what to say if MLflow or Prefect is to blame, or None."""
    if "tasks.tracking" in sys.modules:
        from tasks.tracking import TrackingError

        if isinstance(error, TrackingError):
            return (
                f"MLflow: {one_line(error)}; what is committed is safe, "
                "python -m flows.publish publishes it later"
            )
    if "httpx" in sys.modules:
        from httpx import HTTPError

        if isinstance(error, HTTPError):
            place = os.environ.get("PREFECT_API_URL", "its own address")
            return f"Prefect at {place} does not answer ({one_line(error)}); {what_now()}"
    return None


def run_command(command: Callable[..., None], example: str) -> NoReturn:
    """Be a command: options, the flow, an exit code; nothing of Prefect is waited for in vain."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(epilog=f"Example: {example}")(command)
    try:
        app()
    except SystemExit as end:
        if not hand_in(LAST_HAND_IN_TIMEOUT_S):
            # The interpreter would wait for Prefect's threads, and they for a server that hangs.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise
    sys.exit(0)


def _show(result: Any, text: str, *, as_json: bool) -> None:
    values = None if result is None else dataclasses.asdict(result)
    typer.echo(json.dumps(values) if as_json else text)


def _nightly(
    store: StoreOption,
    federation: NameOption,
    now: Annotated[
        bool,
        typer.Option(
            "--now", help="Close the open round before it is due, if anybody has submitted."
        ),
    ] = False,
    tracking_uri: TrackingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close the round that is due, decide it, publish it and open the next."""
    with failures_in_one_line():
        # Before Prefect is up, which takes seconds: another night may close the round meanwhile.
        newest = Federation.open(store, federation).state().round_num
    what_now = partial(what_now_after, store, federation, newest)
    with failures_in_one_line(what_now=what_now), orchestrated():
        from flows.nightly import nightly

        committed = nightly(store, federation, now=now, tracking_uri=tracking_uri, not_after=newest)
    is_newest = Federation.open(store, federation).state().round_num == max(newest, 1)
    nothing = "nothing is due" if is_newest else f"round {newest} was closed by another night"
    show_committed(committed, nothing, as_json=as_json)


def show_committed(committed: Any, nothing: str, *, as_json: bool) -> None:
    """Print what a round came to; `nothing` where there was none."""
    if committed is None:
        _show(None, nothing, as_json=as_json)
        return
    moves = ", ".join(f"{c} {move}" for c, move in committed.moves.items()) or "nobody moved"
    cohorts = ", ".join(committed.cohorts)
    _show(
        committed,
        f"round {committed.round_num} committed: cohorts {cohorts}; {moves}",
        as_json=as_json,
    )


def what_now_after(store: str, federation: str, round_num: int) -> str:
    """Return what to do after a night that ended in the middle of a round."""
    newest = round_num
    # Where the store cannot be read either, the same command will say so.
    with contextlib.suppress(ClmaError, OSError, ObjectStoreError):
        newest = Federation.open(store, federation).state().round_num
    if newest == round_num:
        return _AGAIN
    # The same command with --now would close the round that plants are working for.
    return (
        f"round {round_num} is closed and the next one open; "
        "python -m flows.publish publishes what MLflow lacks"
    )


def _publish(
    store: StoreOption,
    federation: NameOption,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Write again or remove what is other than the ledger says, too."
        ),
    ] = False,
    tracking_uri: TrackingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish every committed round that is not in MLflow yet."""
    with failures_in_one_line(), orchestrated():
        from flows.publish import publish

        rebuilt = publish(store, federation, tracking_uri, repair)
    forgotten = f", {rebuilt.forgotten} clients forgotten" if rebuilt.forgotten else ""
    _show(
        rebuilt,
        f"{rebuilt.n_rounds} rounds: {rebuilt.runs_created} runs and "
        f"{rebuilt.versions_created} model versions created"
        + (f", {rebuilt.mended} things mended" if repair else "")
        + forgotten,
        as_json=as_json,
    )


def run_nightly_command() -> NoReturn:
    """Be ``python -m flows.nightly``."""
    run_command(
        _nightly, "python -m flows.nightly --store federations/demo --federation demo --now"
    )


def run_publish_command() -> NoReturn:
    """Be ``python -m flows.publish``."""
    run_command(_publish, "python -m flows.publish --store federations/demo --federation demo")
