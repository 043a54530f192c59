"""Results of comparisons as compact tables: methods down, scenarios across.

    python -m benchmarks.comparison_tables build/digits build/pronto

Reads the ``results.parquet`` that `flows.compare` and `make bench-peer-life` leave in each folder
and prints Markdown, one table a figure: mean ± standard deviation over seeds. Bold is what no other
method exceeds by its rounded mean, methods that are told the truth aside.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

FIGURES = {
    "drifted_f1": "Drifting clients, macro-F1 from round 4 on",
    "stationary_f1": "Stationary clients, macro-F1 from round 4 on",
    "final_drifted_f1": "Drifting clients, macro-F1 in the last round",
    "ari": "Final cohorts against the truth, adjusted Rand index",
    "n_cohorts": "Final cohorts",
    "detector_recall": "Drifts that were flagged in their round",
    "false_alarm_rate": "False alarms per client and round",
}
TOLD_THE_TRUTH = frozenset({"oracle"})
SMALLER_IS_BETTER = frozenset({"false_alarm_rate"})
NO_BEST = frozenset({"n_cohorts"})

Row = dict[str, Any]


def read_rows(folders: Iterable[Path]) -> list[Row]:
    """Read the results of several comparisons; a cell that is in two of them counts once."""
    cells: dict[tuple[str, str, int], Row] = {}
    for folder in folders:
        for row in pq.read_table(folder / "results.parquet").to_pylist():
            cells.setdefault((row["scenario"], row["method"], row["seed"]), row)
    return list(cells.values())


def matrix(rows: Sequence[Row], figure: str) -> list[str]:
    """Lay one figure out; empty if no cell has it."""
    known = [row for row in rows if row[figure] is not None]
    scenarios = list(dict.fromkeys(row["scenario"] for row in known))
    methods = list(dict.fromkeys(row["method"] for row in known))
    if not known:
        return []
    values = {
        (m, s): [r[figure] for r in known if (r["method"], r["scenario"]) == (m, s)]
        for m in methods
        for s in scenarios
    }
    best = {s: _best({m: values[m, s] for m in methods}, figure) for s in scenarios}
    n_seeds = {s: max(len(values[m, s]) for m in methods) for s in scenarios}
    heads = [f"{s} ({n_seeds[s]})" for s in scenarios]
    lines = ["| method | " + " | ".join(heads) + " |", "|---" * (len(scenarios) + 1) + "|"]
    for method in methods:
        cells = [_cell(values[method, s], n_seeds[s], best[s]) for s in scenarios]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def _best(values: Mapping[str, Sequence[float]], figure: str) -> float | None:
    means = [
        round(statistics.fmean(v), 3) for m, v in values.items() if v and m not in TOLD_THE_TRUTH
    ]
    if not means or figure in NO_BEST:
        return None
    return min(means) if figure in SMALLER_IS_BETTER else max(means)


def _cell(values: Sequence[float], n_seeds: int, best: float | None) -> str:
    if not values:
        return "-"
    mean = round(statistics.fmean(values), 3)
    text = f"{mean:.3f}"
    if mean == best:
        text = f"**{text}**"
    if len(values) > 1:
        text += f" ± {statistics.stdev(values):.3f}"
    return text if len(values) == n_seeds else f"{text} ({len(values)})"


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of comparisons.")],
) -> None:
    """Print results of comparisons as compact tables."""
    try:
        rows = read_rows(folders)
    except (OSError, pa.ArrowException) as error:
        print(f"comparison-tables failed: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    for figure, title in FIGURES.items():
        lines = matrix(rows, figure)
        if lines:
            print(f"### {title}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
