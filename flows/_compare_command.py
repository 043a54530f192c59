"""Be ``python -m flows.compare``: options, Prefect, the flow, a verdict, an exit code.

Imports prefect only inside the command, after its settings stand.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from clma.report.comparison import figure_of, in_reading_order
from clma.simulation.cell_scenario import CACHE_VARIABLE
from flows._commands import (
    ROOT,
    JsonOption,
    TrackingOption,
    failures_in_one_line,
    orchestrated,
    run_command,
)
from tasks.comparison_request import ComparisonRequest, parse_names, parse_seeds

if TYPE_CHECKING:
    from flows._compared import Compared

__all__ = ["run_compare_command", "verdict"]

INTERRUPTED = 130


def run_compare_command() -> NoReturn:
    """Be ``python -m flows.compare``."""
    run_command(
        _compare,
        "python -m flows.compare --scenarios plant/stagger,plant/gradual "
        "--methods clma,fedavg,local --seeds 100:105 --out comparison",
    )


def verdict(compared: Compared, out: Path) -> str:
    """Return a comparison in one line."""
    methods = in_reading_order(row.method for row in compared.rows)
    means = {
        method: figure_of((r for r in compared.rows if r.method == method), "drifted_f1")
        for method in methods
    }
    figures = ", ".join(f"{m} {s.mean:.3f}" for m, s in means.items() if s is not None)
    text = f"compare: {compared.n_cells} cells, {compared.n_run} of them run now, "
    text += f"{len(compared.failed)} failed"
    text += f"; drifted F1 {figures}" if figures else ""
    text += f"; {compared.n_unpublished} not in MLflow" if compared.n_unpublished else ""
    return f"{text}; {out / 'summary.html'}"


def _compare(
    scenarios: Annotated[str, typer.Option("--scenarios", help="<data>/<schedule>,...")],
    methods: Annotated[str, typer.Option("--methods", help="Presets, and oracle.")],
    seeds: Annotated[str, typer.Option("--seeds", help="FIRST:END, END excluded, or a list.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of results; goes on from there.")],
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Folder of recorded data.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Default: the scenario's own.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value over every preset.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Cells at once; default: all cores.")
    ] = None,
    tracking_uri: TrackingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run every method on every scenario with every seed; what is finished is not run again."""
    started = time.monotonic()
    try:
        with failures_in_one_line(wrong_setting=2):
            request = ComparisonRequest(
                parse_names(scenarios),
                parse_names(methods),
                parse_seeds(seeds),
                str(out),
                None if data_dir is None else str(data_dir),
                rounds,
                tuple(settings or ()),
            )
            request.check()
            compared = _run(request, workers, tracking_uri)
    except KeyboardInterrupt:
        n_done = len(list((out / "cells").glob("*.json")))
        typer.echo(
            f"interrupted: {n_done} finished cells are kept, the same command goes on from here",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    seconds = round(time.monotonic() - started, 1)
    typer.echo(json.dumps(_facts(compared, out, seconds)) if as_json else verdict(compared, out))
    if compared.failed:
        raise typer.Exit(1)


def _run(request: ComparisonRequest, workers: int | None, tracking_uri: str | None) -> Compared:
    typer.echo("starting Prefect ...", err=True)
    # A cell that fails has its line among the others; its traceback is on its page.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault(CACHE_VARIABLE, str(ROOT / ".cache" / "clma"))
    with orchestrated():
        from flows._compared import FailedCellsError
        from flows.compare import compare

        try:
            return compare(request, workers, tracking_uri)
        except FailedCellsError as error:
            return error.compared


def _facts(compared: Compared, out: Path, seconds: float) -> dict[str, Any]:
    return {
        "out": str(out.resolve()),
        "results": str((out / "results.parquet").resolve()),
        "rounds": str((out / "rounds.parquet").resolve()),
        "summary": str((out / "summary.html").resolve()),
        "n_cells": compared.n_cells,
        "n_run": compared.n_run,
        "n_failed": len(compared.failed),
        "failed": compared.failed,
        "experiment": compared.experiment,
        "n_unpublished": compared.n_unpublished,
        "seconds": seconds,
    }
