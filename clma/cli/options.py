"""What the commands have in common: options, times, how a result is shown."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "ClientOption",
    "JsonOption",
    "KeyOption",
    "NameOption",
    "PlantsStoreOption",
    "SettingsOption",
    "StoreOption",
    "example",
    "show",
    "time_text",
]

StoreOption = Annotated[str, typer.Option("--store", help="Folder or object-store URL.")]
PlantsStoreOption = Annotated[
    str, typer.Option("--store", help="Folder, object-store URL, or a gateway's https://HOST/.")
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key", help="The plant's private key, to sign with.", envvar="CLMA_CLIENT_KEY"),
]
NameOption = Annotated[str, typer.Option("--federation", help="Name of the federation.")]
ClientOption = Annotated[str, typer.Option("--client", help="Id of the plant.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", help="section.key=value; may be given again.")
]


def example(command: str) -> str:
    """Return the last line of a command's help."""
    return f"Example: {command}"


def time_text(value: dt.datetime | None) -> str | None:
    """Return a time in UTC to the second."""
    return None if value is None else value.astimezone(dt.UTC).isoformat(timespec="seconds")


def show(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result for a machine or for a person."""
    typer.echo(json.dumps(facts, sort_keys=True) if as_json else text)
