"""The ``clma`` command: results on stdout, the rest on stderr, one line for every expected failure.

Exit codes: 0 done, 1 failed or held, 2 wrong usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from obstore.exceptions import BaseError

from clma import __version__
from clma.cli.checks import doctor, forget, verify
from clma.cli.keys import key_app
from clma.cli.operator import configure, init, status
from clma.cli.options import example
from clma.cli.plant import client_app
from clma.errors import ClmaError, InvalidUpdateError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Keep a fleet's models right when its plants drift apart.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(client_app, name="client")
app.add_typer(key_app, name="key")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Keep a fleet's models right when its plants drift apart."""
    if version:
        typer.echo(f"clma {__version__}")
        raise typer.Exit


for _command, _example in (
    (init, "clma init --store fleet --federation north --model base.safetensors --clients p.txt"),
    (status, "clma status --store fleet --federation north"),
    (configure, "clma configure --store fleet --federation north --set round.quorum=5"),
    (verify, "clma verify --store fleet --federation north"),
    (doctor, "clma doctor --store fleet --federation north"),
    (forget, "clma forget plant-07 --store fleet --federation north --dry-run"),
):
    app.command(epilog=example(_example))(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; expected failures are one line on stderr and exit code 1."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="clma")
    except (ClmaError, OSError, BaseError) as error:
        first_line = str(error).partition("\n")[0]
        reason = f"{error.reason}: " if isinstance(error, InvalidUpdateError) else ""
        typer.echo(f"clma: {reason}{first_line}", err=True)
        sys.exit(1)
