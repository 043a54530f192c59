"""``clma client status`` and ``watch``: where a plant stands, and when there is work for it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from clma.cli.options import (
    ClientOption,
    JsonOption,
    KeyOption,
    NameOption,
    PlantsStoreOption,
    show,
    time_text,
)
from clma.client.access import PlantStatus
from clma.client.pull import read_note
from clma.client.reach import status
from clma.client.watch import PAUSE_S, watch

__all__ = ["client_status", "client_watch"]


def client_status(
    store: PlantsStoreOption,
    federation: NameOption,
    client: ClientOption,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a plant stands: its round, its update, what became of the last one."""
    _show(status(store, federation, client, key=key), as_json=as_json)


def client_watch(
    store: PlantsStoreOption,
    federation: NameOption,
    client: ClientOption,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="What was pulled: wait for what is newer than that."),
    ] = None,
    after_round: Annotated[
        int | None, typer.Option("--round", help="Newest round that was seen.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")
    ] = 86400,
    pause_s: Annotated[
        float, typer.Option("--pause", min=0.1, help="Seconds between two looks.")
    ] = PAUSE_S,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a new round is open or the plant is given another model; 1 if nothing came."""
    note = None if model is None else read_note(model)
    try:
        seen = watch(
            store,
            federation,
            client,
            after_round=after_round if note is None else note.round_num,
            model_digest=None if note is None else note.base_digest,
            timeout_s=timeout_s,
            pause_s=pause_s,
            key=key,
        )
    except KeyboardInterrupt:
        typer.echo("clma: stopped waiting", err=True)
        sys.exit(1)
    if seen is None:
        typer.echo(f"clma: nothing new for {client} in {timeout_s:g} s", err=True)
        sys.exit(1)
    _show(seen, as_json=as_json)


def _show(found: PlantStatus, *, as_json: bool) -> None:
    facts = dataclasses.asdict(found)
    facts = {"round": facts.pop("round_num"), **facts, "deadline": time_text(found.deadline)}
    sent = "no update" if found.sent is None else f"update {found.sent[:12]} is sent"
    judged = ""
    if found.judged_round is not None:
        why = f" ({found.reason}: {found.detail})" if found.reason else ""
        judged = f"; round {found.judged_round}: {found.verdict}{why}"
    show(
        facts,
        f"{found.client_id}: {found.status.value} in cohort {found.cohort_id}; round "
        f"{found.round_num} is {found.phase.value}, {sent}{judged}",
        as_json=as_json,
    )
