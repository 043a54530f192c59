"""Fleets under the public package `fed-clma`, beside this project's methods.

    make bench-peer-life SCENARIOS=digits/stagger SEEDS=100:103

All methods get the same clients, data, initial models and batches of a seed. The package decides in
an environment of its own (`peer_life_side.py`) with its defaults: its strategy, and its detector on
the running training loss, which is what its own clients report. This project's methods go the way
of `flows.compare`. Finished cells are kept in ``--out`` and not run again; tables and summary are
those of a comparison, and the last lines are accuracies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.sides import ONE_THREAD, BenchmarkError
from clma import __version__
from clma.errors import ClmaError
from clma.parameters.tensor_file import serialize_tensors
from clma.report.comparison_page import Comparison
from clma.simulation.cell_scenario import load_cell_fleet
from clma.simulation.cells import Cell, CellResult
from clma.simulation.client import training_rng
from clma.simulation.fleet import Fleet
from clma.simulation.judging import score_clients
from clma.simulation.life import RoundView
from clma.simulation.run_cell import cell_result, run_cell
from clma.simulation.scores import FIRST_SCORED_ROUND, score_fleet
from clma.simulation.training import train
from tasks.kept_cells import KeptCells
from tasks.write_comparison import write_comparison

HERE = Path(__file__).parent
PEER = "fed-clma"

Row = dict[str, Any]


class PeerFederation:
    """The package's server in a process of its own.

    Parameters
    ----------
    python : Path
        Of the environment that has the package.
    fleet : Fleet
    folder : Path
        For the arrays that go between the processes.
    """

    def __init__(self, python: Path, fleet: Fleet, folder: Path) -> None:
        if not python.exists():
            raise BenchmarkError(f"no {python}, `make bench-peer-life` makes it")
        self._fleet, self._folder = fleet, folder
        self._errors = (folder / "errors.txt").open("w+")
        base = folder / "base.npz"
        np.savez(base, **fleet.initial_parameters())
        self._process = subprocess.Popen(
            [str(python), "-E", "-s", str(HERE / "peer_life_side.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={"PATH": "/usr/bin:/bin", **ONE_THREAD},
        )
        start = {"base": str(base), "n_clients": len(fleet.client_ids), "folder": str(folder)}
        self._ask(start)

    def close(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def models(self, round_num: int) -> dict[str, Path]:
        """Return the file of the model that each client is sent."""
        return self._paths(self._ask({"do": "send", "round": round_num})["models"])

    def decide(
        self, round_num: int, losses: Mapping[str, float], n_examples: Mapping[str, int]
    ) -> Row:
        """Hand in what the clients trained; return flags, cohorts and models by client."""
        reply = self._ask(
            {
                "do": "receive",
                "round": round_num,
                "models": {n: str(self.trained(c)) for n, c in self._nodes().items()},
                "losses": {n: losses[c] for n, c in self._nodes().items()},
                "n_examples": {n: n_examples[c] for n, c in self._nodes().items()},
            }
        )
        named = {key: self._by_client(reply[key]) for key in ("flags", "cohorts")}
        return {**named, "models": self._paths(reply["models"])}

    def trained(self, client_id: str) -> Path:
        """Return the file in which a client leaves its trained model."""
        return self._folder / f"trained-{client_id}.npz"

    def _nodes(self) -> dict[int, str]:
        return dict(enumerate(self._fleet.client_ids, start=1))

    def _by_client(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {client_id: values[str(node)] for node, client_id in self._nodes().items()}

    def _paths(self, values: Mapping[str, str]) -> dict[str, Path]:
        return {client_id: Path(path) for client_id, path in self._by_client(values).items()}

    def _ask(self, request: Row) -> Row:
        stdin, stdout = self._process.stdin, self._process.stdout
        line = ""
        if stdin is not None and stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
                line = _line(stdout)
        if not line:
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no output"])[-1]
            raise BenchmarkError(f"peer_life_side.py ended: {last}")
        return dict(json.loads(line))


def _line(stdout: IO[str]) -> str:
    # Flower logs to standard output as well; answers are the lines that are JSON objects.
    for line in stdout:
        if line.startswith("{"):
            return line
    return ""


def run_peer_cell(cell: Cell, python: Path, data_dir: Path | None) -> CellResult:
    """Let a fleet live through its rounds under the package."""
    started = time.monotonic()
    fleet = load_cell_fleet(cell.scenario, cell.seed, data_dir)
    with tempfile.TemporaryDirectory(prefix="clma-peer-") as name:
        peer = PeerFederation(python, fleet, Path(name))
        try:
            views = [
                _view(fleet, peer, round_num)
                for round_num in range(1, (cell.n_rounds or fleet.default_rounds) + 1)
            ]
        finally:
            peer.close()
    scores = score_fleet(fleet, [row for v in views for row in v.scores], views[-1].cohorts)
    n_sent = len(fleet.client_ids) * len(views)
    n_bytes = n_sent * len(serialize_tensors(fleet.initial_parameters()))
    scores = dataclasses.replace(scores, bytes_up=n_bytes, bytes_down=n_bytes)
    return cell_result(cell, fleet, scores, views, time.monotonic() - started)


def _view(fleet: Fleet, peer: PeerFederation, round_num: int) -> RoundView:
    outcome = _round_with_peer(fleet, peer, round_num)
    flags = outcome["flags"]
    served = {client_id: str(path) for client_id, path in outcome["models"].items()}
    models = {name: _read(Path(name)) for name in set(served.values())}
    return RoundView(
        round_num=round_num,
        scores=score_clients(fleet, round_num, served, models, flags),
        flagged=tuple(client_id for client_id, flag in flags.items() if flag),
        moves={},
        cohorts={client_id: f"c{cohort}" for client_id, cohort in outcome["cohorts"].items()},
    )


def _round_with_peer(fleet: Fleet, peer: PeerFederation, round_num: int) -> Row:
    losses: dict[str, float] = {}
    n_examples: dict[str, int] = {}
    for client_id, path in peer.models(round_num).items():
        windows, labels = fleet.training_windows(client_id, round_num)
        watched: list[tuple[float, int]] = []
        trained = train(
            _read(path),
            windows,
            labels,
            fleet.training,
            training_rng(fleet, client_id, round_num),
            model=fleet.model,
            watch_loss=lambda loss, n, seen=watched: seen.append((loss, n)),
        )
        of_batches, sizes = zip(*watched, strict=True)
        losses[client_id] = float(np.average(of_batches, weights=sizes))
        n_examples[client_id] = len(labels)
        np.savez(peer.trained(client_id), **trained)
    return peer.decide(round_num, losses, n_examples)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _result(cell: Cell, kept: KeptCells, peer_python: Path) -> CellResult | str:
    """Return a finished cell, or run it; a failure comes back as one line."""
    known = kept.load(cell)
    if known is not None:
        return known
    try:
        if cell.method == PEER:
            result = run_peer_cell(cell, peer_python, kept.data_dir)
        else:
            result = run_cell(cell, kept.data_dir)
    except (BenchmarkError, ClmaError) as error:
        return str(error)
    kept.save(result)
    return result


def accuracies(results: Sequence[CellResult]) -> list[str]:
    """Lay accuracies out as Markdown: last round / mean from round 4 on, mean +- sd over seeds."""
    lines = [
        "| scenario | method | stationary: last round | from round 4 "
        "| drifted: last round | from round 4 | cohorts |",
        "|" + "---|" * 7,
    ]
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        groups.setdefault((result.cell.scenario, result.cell.method), []).append(result)
    for (scenario, method), group in groups.items():
        cells = [
            _spread([_accuracy(r, drifting=drifting, last=last) for r in group])
            for drifting in (False, True)
            for last in (True, False)
        ]
        cohorts = statistics.fmean(r.row.n_cohorts for r in group)
        lines.append(f"| {scenario} | {method} | " + " | ".join(cells) + f" | {cohorts:.1f} |")
    return lines


def _accuracy(result: CellResult, *, drifting: bool, last: bool) -> float | None:
    final = max(row.round_num for row in result.rounds)
    first = final if last else FIRST_SCORED_ROUND
    values = [
        row.accuracy
        for row in result.rounds
        if row.drifting == drifting and row.round_num >= first and row.accuracy is not None
    ]
    return statistics.fmean(values) if values else None


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.3f}{spread}"


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    try:
        seeds = range(int(first), int(last) if last else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise typer.BadParameter(f"{text!r}, wanted FIRST:END with FIRST < END")
    return seeds


def main(
    scenarios: Annotated[str, typer.Option("--scenarios", help="With commas between.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of finished cells and tables.")],
    methods: Annotated[
        str, typer.Option("--methods", help=f"This project's; {PEER} is always there.")
    ] = "clma,fedavg,local,oracle",
    seeds: Annotated[str, typer.Option("--seeds", help="FIRST:END, END excluded.")] = "100:103",
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Recorded data.")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Default: the scenario's.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Cells at once; default: cores.")
    ] = None,
    peer_python: Annotated[
        Path, typer.Option("--peer-python", help="Of the environment that has the package.")
    ] = Path(".venv-peer/bin/python"),
) -> None:
    """Let fleets live under fed-clma and under this project's methods."""
    kept = KeptCells(out / "cells", data_dir)
    cells = [
        Cell(scenario, method, seed, rounds)
        for scenario in scenarios.split(",")
        for seed in _seeds(seeds)
        for method in (PEER, *methods.split(","))
    ]
    run = partial(_result, kept=kept, peer_python=peer_python)
    results: list[CellResult] = []
    os.environ |= ONE_THREAD  # a cell a core
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool:
        for cell, result in zip(cells, pool.map(run, cells), strict=True):
            if isinstance(result, str):
                pool.shutdown(cancel_futures=True)
                print(f"bench-peer-life: {cell.shown} failed, {result}", file=sys.stderr)
                raise typer.Exit(1)
            results.append(result)
            seconds = f"{result.row.seconds:.0f} s"
            print(f"{len(results)}/{len(cells)} {cell.shown}: {seconds}", file=sys.stderr)
    ordered = tuple(sorted(results, key=lambda r: (r.cell.scenario, r.cell.method != PEER)))
    made_at = f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
    command = f"make bench-peer-life SCENARIOS={scenarios} METHODS={methods} SEEDS={seeds}"
    write_comparison.fn(Comparison(ordered, {}, command, __version__, made_at), out)
    print("\n".join(accuracies(ordered)))
    print(f"bench-peer-life: {len(results)} cells, tables in {out}")


if __name__ == "__main__":
    typer.run(main)
