"""The strategy for Flower beside `fed-clma` and `FedAvg`, in Flower's own simulation engine.

    make bench-flower SCENARIOS=digits/stagger SEEDS=300:303

All methods run the same app on the same data (`flower_side.py`), each in the environment that has
its package and with its defaults. After every round each node is served its model and tests it on
what holds there; accuracies are of the last round, and means from round 4 on. Finished runs are
kept in ``--out`` and not run again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.sides import ONE_THREAD, BenchmarkError
from clma.simulation.fleet import Fleet
from clma.simulation.scenarios import load_scenario

SIDE = Path(__file__).with_name("flower_side.py")
METHODS = ("clma", "fed-clma", "fedavg")
FIRST_SCORED_ROUND = 4


@dataclass(frozen=True, slots=True)
class Accuracies:
    """Of one run: means over the nodes that never drift, and over those that do."""

    stationary: float | None
    drifted: float | None
    final_stationary: float | None
    final_drifted: float | None


def write_fleet(fleet: Fleet, path: Path) -> None:
    """Write what every node sees in every round, for programs that know no fleets."""
    arrays = {}
    for node, client_id in enumerate(fleet.client_ids):
        for round_num in range(1, fleet.default_rounds + 1):
            for kind, windows in (("train", fleet.training_windows), ("test", fleet.test_windows)):
                x, y = windows(client_id, round_num)
                arrays |= {f"{kind}-x-{node}-{round_num}": x, f"{kind}-y-{node}-{round_num}": y}
    np.savez(path, **arrays)


def accuracies(fleet: Fleet, rounds: Sequence[Sequence[float]]) -> Accuracies:
    """Average a run's accuracies.

    Parameters
    ----------
    fleet : Fleet
    rounds : sequence of sequence of float in [0, 1]
        By round and node.
    """
    drifting = [c in fleet.drifted_clients for c in fleet.client_ids]
    late = rounds[FIRST_SCORED_ROUND - 1 :]
    return Accuracies(
        stationary=_mean(late, drifting, wanted=False),
        drifted=_mean(late, drifting, wanted=True),
        final_stationary=_mean(rounds[-1:], drifting, wanted=False),
        final_drifted=_mean(rounds[-1:], drifting, wanted=True),
    )


def _mean(
    rounds: Sequence[Sequence[float]], drifting: Sequence[bool], *, wanted: bool
) -> float | None:
    values = [
        v for row in rounds for v, is_one in zip(row, drifting, strict=True) if is_one is wanted
    ]
    return statistics.fmean(values) if values else None


def run_app(python: Path, method: str, fleet: Fleet, seed: int) -> Accuracies:
    """Run the app once; BenchmarkError with the last line if it fails."""
    if not python.exists():
        raise BenchmarkError(f"no {python}, `make bench-flower` makes it")
    with tempfile.TemporaryDirectory(prefix="clma-flower-") as name:
        folder = Path(name)
        data, out = folder / "fleet.npz", folder / "out.json"
        write_fleet(fleet, data)
        figures = {"seed": seed, "n-rounds": fleet.default_rounds, "n-nodes": len(fleet.client_ids)}
        options = [f"--{key}={value}" for key, value in figures.items()]
        done = subprocess.run(
            # Ray puts the working directory before the packages: it must hold neither of the two.
            [python.absolute(), SIDE, "--method", method, "--data", data, "--out", out, *options],
            cwd=folder,
            env=_environment(folder, method),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not out.exists():
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise BenchmarkError(f"{method} failed: {last}")
        return accuracies(fleet, json.loads(out.read_text())["accuracy"])


def _environment(folder: Path, method: str) -> dict[str, str]:
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    places = {"FLWR_HOME": str(folder / "flwr"), "HOME": str(folder)}
    env = {**os.environ, **ONE_THREAD, **quiet, **places}
    if method != "clma":
        env.pop("PYTHONPATH", None)
    return env


def table(results: dict[tuple[str, str], list[Accuracies]]) -> list[str]:
    """Lay results out as Markdown: mean +- standard deviation over the seeds."""
    lines = [
        "| scenario | method | stationary: last round | from round 4 "
        "| drifted: last round | from round 4 |",
        "|" + "---|" * 6,
    ]
    for (scenario, method), runs in results.items():
        columns = ("final_stationary", "stationary", "final_drifted", "drifted")
        cells = [_spread([getattr(run, name) for run in runs]) for name in columns]
        lines.append(f"| {scenario} | {method} | " + " | ".join(cells) + " |")
    return lines


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.3f}{spread}"


def differences(results: dict[tuple[str, str], list[Accuracies]]) -> Iterator[str]:
    """Yield, scenario by scenario, how far this project is ahead of fed-clma from round 4 on."""
    for scenario in dict.fromkeys(scenario for scenario, _ in results):
        ours, theirs = results[scenario, "clma"], results.get((scenario, "fed-clma"), [])
        for name in ("stationary", "drifted"):
            pairs = [
                (getattr(o, name), getattr(t, name)) for o, t in zip(ours, theirs, strict=True)
            ]
            ahead = [o - t for o, t in pairs if o is not None and t is not None]
            if ahead:
                worse = sum(difference < 0 for difference in ahead)
                yield (
                    f"{scenario} {name}: {statistics.fmean(ahead):+.3f}, "
                    f"behind in {worse} of {len(ahead)} seeds"
                )


def _kept(path: Path) -> Accuracies | None:
    return Accuracies(**json.loads(path.read_text())) if path.exists() else None


def main(
    out: Annotated[Path, typer.Option("--out", help="Folder of finished runs.")],
    scenarios: Annotated[str, typer.Option("--scenarios", help="With commas between.")],
    seeds: Annotated[str, typer.Option("--seeds", help="FIRST:END, END excluded.")] = "300:303",
    methods: Annotated[str, typer.Option("--methods")] = ",".join(METHODS),
    python: Annotated[Path, typer.Option("--python", help="With this project and Flower.")] = Path(
        sys.executable
    ),
    peer_python: Annotated[Path, typer.Option("--peer-python", help="With fed-clma.")] = Path(
        ".venv-peer/bin/python"
    ),
) -> None:
    """Run one Flower app under several strategies."""
    first, _, end = seeds.partition(":")
    results: dict[tuple[str, str], list[Accuracies]] = {}
    out.mkdir(parents=True, exist_ok=True)
    for scenario in scenarios.split(","):
        for method in methods.split(","):
            for seed in range(int(first), int(end or int(first) + 1)):
                path = out / f"{scenario.replace('/', '-')}.{method}.{seed}.json"
                found = _kept(path)
                if found is None:
                    side = peer_python if method == "fed-clma" else python
                    try:
                        found = run_app(side, method, load_scenario(scenario, seed), seed)
                    except BenchmarkError as error:
                        print(f"bench-flower: {scenario} seed {seed}: {error}", file=sys.stderr)
                        raise typer.Exit(1) from None
                    path.write_text(json.dumps(dataclasses.asdict(found)))
                    print(f"{scenario} {method} {seed}: done", file=sys.stderr)
                results.setdefault((scenario, method), []).append(found)
    print("\n".join([*table(results), "", *differences(results)]))
    print(f"bench-flower: {sum(map(len, results.values()))} runs, kept in {out}")


if __name__ == "__main__":
    typer.run(main)
