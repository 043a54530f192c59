"""``clma verify``: is what the ledger names still what it was."""

from __future__ import annotations

import dataclasses

import typer

from clma.cli.options import JsonOption, NameOption, StoreOption, show
from clma.ledger.audit import audit
from clma.ledger.federation import Federation

__all__ = ["verify"]


def verify(store: StoreOption, federation: NameOption, as_json: JsonOption = False) -> None:
    """Walk the chain and hash every artifact that an entry names."""
    report = audit(Federation.open(store, federation))
    for problem in report.problems:
        typer.echo(problem, err=True)
    show(
        {**dataclasses.asdict(report), "ok": not report.problems},
        f"{report.n_entries} entries, {report.n_artifacts} artifacts, "
        f"{len(report.problems)} problems",
        as_json=as_json,
    )
    if report.problems:
        raise typer.Exit(1)
