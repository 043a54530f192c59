"""Drift detectors side by side on the same losses, without what their flags would lead to.

    make bench-detectors SCENARIOS=digits/stagger,digits/gradual SEEDS=300:302

Each fleet lives once under the true cohorts (preset ``oracle``), so that no detector's mistakes
spoil the models it is asked about. Recorded is what a plant sees at the start of a round: the loss
of the model of the last commit on the round's fresh data. The detectors then read the recorded
series as they are, and with all losses and standard errors multiplied by 10 and by 0.1: a rule that
is free of scale flags the same.

A drift is flagged if it is so in its round, a gradual one in any round of its ramp. False alarms
are counted over rounds without a change of the client's data; the round directly after a change is
left out, as a flag there may still mean the drift.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.sides import ONE_THREAD
from clma.client.model_file import read_parameters
from clma.config import preset_config
from clma.drift import (
    AnchoredDetector,
    Detector,
    DetectorState,
    LossThresholdDetector,
    make_detector,
)
from clma.errors import ClmaError
from clma.records import FederationState
from clma.simulation.cell_scenario import load_cell_fleet
from clma.simulation.fleet import Fleet
from clma.simulation.life import RoundView, closing, found_federation, live
from clma.simulation.training import losses
from tasks.comparison_request import parse_seeds

DETECTORS: Mapping[str, Detector] = {
    "quiet_level": make_detector(preset_config("detectors", "clma").drift),
    "anchored": AnchoredDetector(anchor_fraction=0.05, relative_rise=0.25, z_score=3.0),
    "loss_threshold": LossThresholdDetector(gamma=0.1),
}
SCALES = (1.0, 10.0, 0.1)


@dataclass(frozen=True, slots=True)
class Series:
    """What one client's detector is shown, and the truth about it.

    Parameters
    ----------
    losses, standard_errors : tuple of float
        Of each round that the client takes part in: the mean over the fresh samples, in nats, and
        its standard error.
    changed : tuple of bool
        Whether the client's data are another mixture of concepts than in the round before.
    drifts : tuple of tuple of int
        Places in `losses` of the rounds in which each drift changed the data.
    """

    losses: tuple[float, ...]
    standard_errors: tuple[float, ...]
    changed: tuple[bool, ...]
    drifts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """How right a detector was: drifts that it flagged, and flags where nothing changed."""

    n_flagged: int = 0
    n_drifts: int = 0
    n_false: int = 0
    n_quiet: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.n_flagged + other.n_flagged,
            self.n_drifts + other.n_drifts,
            self.n_false + other.n_false,
            self.n_quiet + other.n_quiet,
        )


def record_life(
    scenario: str, seed: int, data_dir: Path | None, n_rounds: int | None
) -> list[Series]:
    """Let a fleet live under its true cohorts; return the series of its clients.

    Parameters
    ----------
    scenario : str
        As `load_cell_fleet` takes it.
    seed : int, >= 0
    data_dir : Path or None
        Folder of recorded data.
    n_rounds : int >= 2, or None
        Default: the scenario's.

    Raises
    ------
    ClmaError
        If there is no such scenario, or its data are not there.
    """
    fleet = load_cell_fleet(scenario, seed, data_dir)
    last = n_rounds or fleet.default_rounds
    seen: dict[str, list[tuple[float, float]]] = {c: [] for c in fleet.client_ids}
    with tempfile.TemporaryDirectory(prefix="clma-detectors-") as name:
        folder = Path(name)
        federation = found_federation(
            fleet, folder / "store", "detectors", folder, preset="oracle", n_rounds=last
        )
        look = partial(_look, fleet, federation.model_path, seen)

        def watch(view: RoundView) -> None:
            # As of the commit: the round that is open already serves the cohorts of after a drift.
            look(view.round_num + 1, federation.state_at_commit(view.round_num))

        look(1, federation.state())
        close = closing(fleet, federation)
        live(fleet, federation, folder / "plants", n_rounds=last - 1, close=close, watch=watch)
    return [_series(fleet, client_id, seen[client_id]) for client_id in fleet.client_ids]


def _look(
    fleet: Fleet,
    path_of: Callable[[str], Path],
    seen: Mapping[str, list[tuple[float, float]]],
    round_num: int,
    state: FederationState,
) -> None:
    served = {
        client_id: client.serving_digest
        for client_id, client in state.clients.items()
        if fleet.schedule.first_round(client_id) <= round_num
    }
    models = {digest: read_parameters(path_of(digest)) for digest in set(served.values())}
    for client_id, digest in served.items():
        windows, labels = fleet.training_windows(client_id, round_num)
        values = losses(models[digest], windows, labels, model=fleet.model)
        error = float(values.std() / np.sqrt(values.size))
        seen[client_id].append((float(values.mean()), error))


def _series(fleet: Fleet, client_id: str, seen: Sequence[tuple[float, float]]) -> Series:
    first = fleet.schedule.first_round(client_id)
    changed = [i > 0 and fleet.changes(client_id, first + i) for i in range(len(seen))]
    starts = [(e.round_num - first, e.ramp_rounds) for e in fleet.schedule.events_of(client_id)]
    ramps = [[i for i in range(s, s + n) if 0 < i < len(seen) and changed[i]] for s, n in starts]
    means, errors = zip(*seen, strict=True)
    drifts = tuple(tuple(ramp) for ramp in ramps if ramp)
    return Series(tuple(means), tuple(errors), tuple(changed), drifts)


def flags_of(detector: Detector, series: Series, *, scale: float = 1.0) -> list[bool]:
    """Return a detector's flags over a series whose losses are multiplied by `scale` > 0."""
    state = DetectorState()
    flags: list[bool] = []
    for loss, error in zip(series.losses, series.standard_errors, strict=True):
        state, reading = detector.observe(state, scale * loss, standard_error=scale * error)
        flags.append(reading.drift_detected)
    return flags


def count(series: Series, flags: Sequence[bool]) -> Counts:
    """Compare a client's flags with the truth; the first round has nothing to compare with."""
    quiet = [i for i in range(1, len(flags)) if not series.changed[i] and not series.changed[i - 1]]
    return Counts(
        n_flagged=sum(any(flags[i] for i in drift) for drift in series.drifts),
        n_drifts=len(series.drifts),
        n_false=sum(flags[i] for i in quiet),
        n_quiet=len(quiet),
    )


def table(lives: Mapping[str, Sequence[Series]]) -> list[str]:
    """Lay the figures out as Markdown: scenarios and detectors down, scales across.

    Parameters
    ----------
    lives : mapping of scenario to its series
        Of all seeds. A data set of several scenarios also gets the sum over them.
    """
    heads = [
        f"{figure}, losses x {scale:g}" for scale in SCALES for figure in ("recall", "false alarms")
    ]
    lines = ["| scenario | detector | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(heads) + 2) + "|")
    for scenario, series in _with_sums(lives).items():
        for name, detector in DETECTORS.items():
            cells = [_cells(detector, series, scale) for scale in SCALES]
            lines.append(f"| {scenario} | {name} | " + " | ".join(cells) + " |")
    return lines


def _with_sums(lives: Mapping[str, Sequence[Series]]) -> dict[str, Sequence[Series]]:
    groups: dict[str, list[str]] = {}
    for scenario in lives:
        groups.setdefault(scenario.partition("/")[0], []).append(scenario)
    rows: dict[str, Sequence[Series]] = {}
    for data_set, scenarios in groups.items():
        rows |= {s: lives[s] for s in scenarios}
        if len(scenarios) > 1:
            rows[f"{data_set}, all {len(scenarios)}"] = [x for s in scenarios for x in lives[s]]
    return rows


def _cells(detector: Detector, series: Iterable[Series], scale: float) -> str:
    counts = sum((count(s, flags_of(detector, s, scale=scale)) for s in series), Counts())
    return f"{_share(counts.n_flagged, counts.n_drifts)} | {_share(counts.n_false, counts.n_quiet)}"


def _share(n: int, of: int) -> str:
    return f"{n / of:.3f} ({n}/{of})" if of else "-"


def _life(cell: tuple[str, int], data_dir: Path | None, n_rounds: int | None) -> list[Series] | str:
    """Record a life; a failure comes back as one line."""
    try:
        return record_life(*cell, data_dir, n_rounds)
    except ClmaError as error:
        return str(error)


def main(
    scenarios: Annotated[str, typer.Option("--scenarios", help="With commas between.")],
    seeds: Annotated[str, typer.Option("--seeds", help="FIRST:END, END excluded.")] = "300:302",
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Recorded data.")] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=2, help="Default: the scenario's.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Lives at once; default: cores.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File for the table as well.")] = None,
) -> None:
    """Run the detectors on recorded lives of fleets."""
    try:
        cells = [(s, seed) for s in scenarios.split(",") for seed in parse_seeds(seeds)]
    except ClmaError as error:
        raise typer.BadParameter(str(error)) from None
    run = partial(_life, data_dir=data_dir, n_rounds=rounds)
    lives: dict[str, list[Series]] = {}
    os.environ |= ONE_THREAD  # a life a core
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool:
        for n, (cell, life) in enumerate(zip(cells, pool.map(run, cells), strict=True), start=1):
            shown = f"{cell[0]} seed {cell[1]}"
            if isinstance(life, str):
                pool.shutdown(cancel_futures=True)
                print(f"bench-detectors: {shown} failed, {life}", file=sys.stderr)
                raise typer.Exit(1)
            lives.setdefault(cell[0], []).extend(life)
            print(f"{n}/{len(cells)} {shown}: {len(life)} clients", file=sys.stderr)
    text = "\n".join(table(lives))
    print(text)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    print(f"bench-detectors: {len(cells)} lives, {len(DETECTORS)} detectors", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
