"""Be ``python -m flows.calibrate``: options, Prefect, the flow, tables, an exit code.

Imports prefect only inside the command, after its settings stand.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from clma.calibration.hindsight import HORIZON
from clma.calibration.thresholds import MIN_EVIDENCE, Proposal
from clma.calibration.what_if import override_decisions
from clma.errors import InvalidConfigError
from clma.ledger.federation import Federation
from clma.report.calibration import calibration_sections, configure_command, nothing_learned
from flows._commands import (
    JsonOption,
    NameOption,
    StoreOption,
    failures_in_one_line,
    orchestrated,
    run_command,
)
from tasks.calibration_request import CalibrationRequest

if TYPE_CHECKING:
    from clma.calibration.calibration import Calibration

__all__ = ["run_calibrate_command"]

INTERRUPTED = 130


def run_calibrate_command() -> NoReturn:
    """Be ``python -m flows.calibrate``."""
    run_command(
        _calibrate,
        "python -m flows.calibrate --store federations/demo --federation demo --out calibration",
    )


def _calibrate(
    store: StoreOption,
    federation: NameOption,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of results; goes on from there. Default: screen only."),
    ] = None,
    since: Annotated[int, typer.Option("--since", min=1, help="First round to look at.")] = 1,
    horizon: Annotated[
        int, typer.Option("--horizon", min=1, help="Nights after a decision that judge it.")
    ] = HORIZON,
    min_evidence: Annotated[
        int,
        typer.Option("--min-evidence", min=1, help="Fewest cases of each kind for a proposal."),
    ] = MIN_EVIDENCE,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            help="section.key=value: decide every recorded night again with it, each from its own "
            "recorded state (nothing is trained anew). Default: with what is proposed.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Learn thresholds from a federation's recorded nights; the federation is only read."""
    request = CalibrationRequest(
        store, federation, since, horizon, min_evidence, tuple(what_if or ())
    )
    with tempfile.TemporaryDirectory(prefix="clma-calibrate-") as scratch:
        folder = Path(scratch) if out is None else out
        try:
            with failures_in_one_line():
                opened = Federation.open(request.store, request.federation)
            with failures_in_one_line(wrong_setting=2):
                _check(request, opened, folder)
                calibration = _run(request, folder)
        except KeyboardInterrupt:
            n_done = len(list((folder / "nights").glob("*.safetensors")))
            typer.echo(
                "interrupted: nothing is kept without --out"
                if out is None
                else f"interrupted: {n_done} measured rounds are kept, the same command goes on "
                "from here",
                err=True,
            )
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(_facts(calibration, store, out)))
    elif not calibration.teaches:
        typer.echo(nothing_learned(calibration))
    else:
        from flows._section_screen import show_sections

        show_sections(calibration_sections(calibration, store))
        if out is not None:
            typer.echo(f"\ncalibrate: {out / 'calibration.md'}, {out / 'calibration.toml'}")


def _check(request: CalibrationRequest, opened: Federation, folder: Path) -> None:
    """Refuse what cannot be done before Prefect is up, which takes seconds."""
    override_decisions(opened.config, request.what_if)
    place = Path(request.store).resolve()
    if place.is_dir() and folder.resolve().is_relative_to(place):
        raise InvalidConfigError(
            f"--out {folder} lies within the federation's folder, which is only read"
        )


def _run(request: CalibrationRequest, folder: Path) -> Calibration:
    typer.echo("starting Prefect ...", err=True)
    # A round whose weights are gone has its line; its traceback is on its page.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    with orchestrated():
        from flows.calibrate import calibrate

        return calibrate(request, str(folder))


def _facts(calibration: Calibration, store: str, out: Path | None) -> dict[str, Any]:
    seen = calibration.hindsight
    return {
        "federation": calibration.federation,
        "n_rounds": calibration.n_rounds,
        "out": None if out is None else str(out.resolve()),
        "teaches": calibration.teaches,
        "n_pairs_alike": sum(p.alike for p in seen.pairs),
        "n_pairs_unlike": sum(not p.alike for p in seen.pairs),
        "n_pairs_unclear": seen.n_unclear,
        "false_alarm_rate": calibration.flags.false_alarm_rate,
        "proposals": [_proposal(p) for p in (*calibration.thresholds, *calibration.detector)],
        "command": configure_command(store, calibration),
        "unread": {str(r): why for r, why in calibration.unread.items()},
        "what_if": list(calibration.what_if),
        "nights": [dataclasses.asdict(night) for night in calibration.again],
    }


def _proposal(p: Proposal) -> dict[str, Any]:
    return {
        "setting": p.setting,
        "in_force": p.in_force,
        "value": p.value,
        "reason": p.reason,
        "errors_in_force": None
        if p.errors_in_force is None
        else dataclasses.asdict(p.errors_in_force),
        "errors": None if p.errors is None else dataclasses.asdict(p.errors),
    }
