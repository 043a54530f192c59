"""Be ``python -m flows.extra_round``: look first, start Prefect only where something is due."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import NoReturn

import typer

from clma.extra_round import look_at_requests
from clma.ledger.federation import Federation
from flows._commands import (
    JsonOption,
    NameOption,
    StoreOption,
    TrackingOption,
    failures_in_one_line,
    orchestrated,
    run_command,
    show_committed,
    what_now_after,
)

__all__ = ["run_extra_round_command"]


def _extra_round(
    store: StoreOption,
    federation: NameOption,
    tracking_uri: TrackingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close the open round early if enough plants ask for it, and open the next."""
    with failures_in_one_line():
        opened = Federation.open(store, federation)
        asked = look_at_requests(opened, now=dt.datetime.now(dt.UTC))
    if not asked.is_due:
        show_committed(None, asked.detail, as_json=as_json)
        return
    typer.echo(asked.detail, err=True)
    what_now = partial(what_now_after, store, federation, asked.round_num)
    with failures_in_one_line(what_now=what_now), orchestrated():
        from flows.extra_round import extra_round

        committed = extra_round(store, federation, tracking_uri)
    show_committed(committed, f"round {asked.round_num} was closed by another", as_json=as_json)


def run_extra_round_command() -> NoReturn:
    """Be the command."""
    run_command(
        _extra_round, "python -m flows.extra_round --store federations/demo --federation demo"
    )
