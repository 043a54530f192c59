"""Recorded plant data, four methods side by side.

    python benchmarks/pronto.py --data pronto_process_1hz.parquet --seeds 200:203

Ten clients, ten rounds, three recipes, every method on the same data, initial model and batches of
a seed. The clients go the public way (pull, train, submit); rounds are closed in this process,
which gives the bytes of the nightly flow without its servers. Finished cells are kept in ``--out``
and not run again.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from clma.errors import ClmaError
from clma.simulation.life import closing, found_federation, live
from clma.simulation.recipes import load_fleet

METHODS = ("clma", "clma-literal", "fedavg", "oracle")
RECIPES = ("pronto-mixed", "pronto-covariate", "pronto-concept")
N_ROUNDS = 10
COLUMNS = {
    "drifted_f1": "drifted F1",
    "final_drifted_f1": "last round",
    "stationary_f1": "stationary F1",
    "ari": "ARI",
    "n_cohorts": "cohorts",
    "detector_recall": "recall",
    "false_alarm_rate": "false alarms",
}

Row = dict[str, Any]


def run_cell(data: Path, recipe: str, method: str, seed: int) -> Row:
    """Let one fleet live through its rounds under one method."""
    started = time.monotonic()
    fleet = load_fleet(data, recipe, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation = found_federation(
            fleet, folder / "store", "pronto", folder, preset=method, n_rounds=N_ROUNDS
        )
        scores = live(
            fleet,
            federation,
            folder / "plants",
            n_rounds=N_ROUNDS,
            close=closing(fleet, federation),
        )
    return {
        "scenario": recipe,
        "method": method,
        "seed": seed,
        **dataclasses.asdict(scores),
        "seconds": round(time.monotonic() - started, 1),
    }


def mean(rows: Sequence[Row], column: str) -> float:
    """Average a column over the rows that have it."""
    return statistics.fmean(row[column] for row in rows if row[column] is not None)


def table(rows: Sequence[Row]) -> str:
    """Lay the means (± sd over seeds) out as Markdown, one line a recipe and method."""
    lines = [
        "| recipe | method | " + " | ".join(COLUMNS.values()) + " |",
        "|" + "---|" * (len(COLUMNS) + 2),
    ]
    for recipe in (*RECIPES, "all three"):
        for method in METHODS:
            picked = [
                r for r in rows if r["method"] == method and recipe in (r["scenario"], "all three")
            ]
            cells = [_cell(picked, column, method) for column in COLUMNS]
            lines.append(f"| {recipe} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: Sequence[Row], column: str, method: str) -> str:
    # Flags of FedAvg and of the oracle's clients lead nowhere: their rates say nothing of a method.
    if column in {"detector_recall", "false_alarm_rate"} and method in {"fedavg", "oracle"}:
        return "-"
    values = [row[column] for row in rows]
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{spread}"


def expectations(rows: Sequence[Row]) -> Mapping[str, tuple[float, str, float]]:
    """Return what was expected of `clma`: figure, comparison and bound, by name."""
    by = {m: [r for r in rows if r["method"] == m] for m in METHODS}
    concept = {m: [r for r in by[m] if r["scenario"] == "pronto-concept"] for m in METHODS}
    ours = by["clma"]

    def gain(column: str, other: str, cells: Mapping[str, Sequence[Row]] = by) -> float:
        return mean(cells["clma"], column) - mean(cells[other], column)

    return {
        "drifted F1 against oracle": (gain("drifted_f1", "oracle"), ">=", -0.035),
        "drifted F1 against FedAvg": (gain("drifted_f1", "fedavg"), ">=", 0.05),
        "the same, relabelling": (gain("drifted_f1", "fedavg", concept), ">=", 0.10),
        "drifted F1 against literal": (gain("drifted_f1", "clma-literal"), ">=", 0.03),
        "stationary F1 against oracle": (gain("stationary_f1", "oracle"), ">=", -0.03),
        "false alarms per client and round": (mean(ours, "false_alarm_rate"), "<=", 0.07),
        "cohorts, mean (2 or 3 are true)": (mean(ours, "n_cohorts"), "<=", 6.0),
        "cohorts, most in one run": (float(max(r["n_cohorts"] for r in ours)), "<=", 6.0),
    }


def _seeds(text: str) -> range:
    try:
        first, _, last = text.partition(":")
        seeds = range(int(first), int(last) if last else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise typer.BadParameter(f"{text!r}, wanted FIRST:END with FIRST < END")
    return seeds


def main(
    data: Annotated[Path, typer.Option("--data", help="pronto_process_1hz.parquet")],
    seeds: Annotated[str, typer.Option("--seeds", help="FIRST:END, END excluded.")] = "200:203",
    out: Annotated[Path, typer.Option("--out", help="Folder of finished cells.")] = Path(
        "build/bench-pronto"
    ),
) -> None:
    """Compare four methods on recorded plant data."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    cells = [(s, r, m) for s in _seeds(seeds) for r in RECIPES for m in METHODS]
    for number, (seed, recipe, method) in enumerate(cells, start=1):
        kept = out / f"{recipe}-{method}-{seed}.json"
        if not kept.exists():
            try:
                kept.write_text(json.dumps(run_cell(data, recipe, method, seed)))
            except ClmaError as error:
                print(f"bench-pronto failed: {error}", file=sys.stderr)
                raise typer.Exit(1) from None
        rows.append(json.loads(kept.read_text()))
        print(
            f"{number}/{len(cells)} {recipe} {method} seed {seed}: "
            f"drifted F1 {rows[-1]['drifted_f1']:.3f}",
            file=sys.stderr,
        )
    print(table(rows))
    print()
    missed = 0
    for name, (value, sign, bound) in expectations(rows).items():
        met = value >= bound if sign == ">=" else value <= bound
        missed += not met
        print(
            f"{'met   ' if met else 'missed'}  {name}: {value:+.3f}, expected {sign} {bound:+.3f}"
        )
    print(f"bench-pronto: {len(rows)} runs, {missed} expectations missed")


if __name__ == "__main__":
    typer.run(main)
