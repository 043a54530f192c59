"""Whole rounds of this project at the sizes it is made for, against what the machine allows.

    make bench SIZES="10x545290 1000x1e6:10%"

Each size is one round in a fresh process with one BLAS thread on one CPU, files in the page cache
as far as memory goes. The roofline is the CPU time that reading, summing, sorting and multiplying
the same values take at the rates that `benchmarks/machine.py` measures just before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.fleet_files import FleetSize, NoRoomError, delete_fleets, make_fleet, parse_size
from benchmarks.machine import describe_machine, measure_rates, roofline_s
from benchmarks.meter import Reading
from benchmarks.sides import ONE_THREAD, BenchmarkError, Result, ask_side

SIZES = "10x545290 50x1e6 100x1e6 1000x1e5 20x11.2e6 100x1e6:10% 1000x1e6:10% 20x1e8"
COLUMNS = (
    "clients x parameters",
    "wall s",
    "CPU s",
    "peak RSS MiB",
    "over imports MiB",
    "read GB",
    "roofline s",
    "CPU / roofline",
    "cohorts",
)

MARKS = ("<!-- bench:begin -->", "<!-- bench:end -->")

MAX_WALL_S = 120.0
MAX_PEAK_BYTES = 2**30
MAX_GROWTH = 1.15
"""Memory at ten times the clients, as a multiple."""
MAX_ROOFLINES = 3.0
"""CPU time of a round that is mostly the pass over its files, as a multiple of the floor."""
MAX_EXTRA_BYTES = 100 * 2**20
"""Memory beside three models, over what imports take."""
BIG_MODEL = 100_000_000
MAX_BIG_WALL_S = 600.0


@dataclass(frozen=True, slots=True)
class Row:
    """One measured round."""

    size: FleetSize
    cost: Reading
    roofline_s: float
    cohorts: tuple[int, ...]

    def cells(self) -> tuple[str, ...]:
        """Return the row's texts, in the order of `COLUMNS`."""
        read_bytes = (self.size.n_clients + 1) * self.size.model_bytes
        return (
            str(self.size),
            f"{self.cost.wall_s:.2f}",
            f"{self.cost.cpu_s:.2f}",
            f"{self.cost.peak_bytes / 2**20:.0f}",
            f"{self.cost.over_bytes / 2**20:.0f}",
            f"{read_bytes / 1e9:.2f}",
            f"{self.roofline_s:.3f}",
            f"{self.cost.cpu_s / self.roofline_s:.1f}",
            " + ".join(str(n) for n in self.cohorts),
        )


def measure_round(size: FleetSize, root: Path) -> Row:
    """Make a fleet's files, measure the machine with them, and run one round."""
    fleet = make_fleet(size, root, progress=True)
    files = (*fleet.drifted, *fleet.quiet)
    tell(f"{size}: the machine's rates")
    rates = measure_rates(files, n_rows=size.n_drifted, n_values=size.n_parameters)
    tell(f"{size}: the round")
    result: Result = ask_side(
        [sys.executable, "-m", "benchmarks.round_side"], {"size": str(size), "dir": str(root)}
    )
    cohorts = tuple(n for _, n in sorted(result.pop("cohorts").items()))
    return Row(size, Reading(**result), roofline_s(size, rates), cohorts)


def render_table(rows: Sequence[Row]) -> str:
    """Lay rounds out as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(row.cells()) + " |" for row in rows)])


def write_table(path: Path, text: str) -> None:
    """Write a file, or replace what a document has between its two marks."""
    before, begin, rest = (path.read_text() if path.exists() else "").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if end:
        path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
    else:
        path.write_text(text + "\n")


def expectations(rows: Sequence[Row]) -> Iterator[tuple[str, float, float]]:
    """Yield what is expected of the rounds that were run: name, figure and upper bound."""
    by = {row.size: row for row in rows}
    few, many = parse_size("100x1e6:10%"), parse_size("1000x1e6:10%")
    for size, row in by.items():
        bound = 3 * size.model_bytes + MAX_EXTRA_BYTES
        yield f"{size}: MiB over imports", row.cost.over_bytes / 2**20, bound / 2**20
        if size.n_parameters >= BIG_MODEL:
            yield f"{size}: wall s", row.cost.wall_s, MAX_BIG_WALL_S
    if many in by:
        cost = by[many].cost
        yield "1,000 clients: wall s", cost.wall_s, MAX_WALL_S
        yield "1,000 clients: peak RSS GiB", cost.peak_bytes / 2**30, MAX_PEAK_BYTES / 2**30
        yield "1,000 clients: CPU / roofline", cost.cpu_s / by[many].roofline_s, MAX_ROOFLINES
    if few in by and many in by:
        # With the same libraries loaded: the larger job may have a use for one more.
        imports = by[few].cost.peak_bytes - by[few].cost.over_bytes
        growth = (imports + by[many].cost.over_bytes) / by[few].cost.peak_bytes
        yield "RSS at 1,000 clients / at 100", growth, MAX_GROWTH


def tell(text: str) -> None:
    """Report progress."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _sizes(text: str) -> list[FleetSize]:
    try:
        return [parse_size(part) for part in text.replace(",", " ").split()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def main(
    sizes: Annotated[
        str, typer.Option("--sizes", help="CLIENTSxPARAMETERS[:DRIFTED%] ...")
    ] = SIZES,
    folder: Annotated[Path, typer.Option("--dir", help="Where the fleets lie; made.")] = (
        Path(__file__).parent / ".data"
    ),
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A file for the table, or with marks where it belongs."),
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Delete the fleets afterwards.")] = False,
) -> None:
    """Measure whole rounds."""
    rows: list[Row] = []
    failed = 0
    for size in _sizes(sizes):
        try:
            rows.append(measure_round(size, folder))
        except (BenchmarkError, NoRoomError, OSError) as error:
            failed += 1
            print(f"not measured: {error}")
    if clean:
        delete_fleets(folder)
    text = f"{describe_machine()}; {', '.join(f'{k}=1' for k in ONE_THREAD)}\n\n"
    text += render_table(rows)
    print(text)
    if out is not None:
        write_table(out, text)
    missed = 0
    for name, value, bound in expectations(rows):
        missed += value > bound
        verdict = "missed" if value > bound else "met   "
        print(f"{verdict}  {name}: {value:.2f}, expected <= {bound:.2f}")
    worst = max((row.cost.cpu_s / row.roofline_s for row in rows), default=0.0)
    print(
        f"bench: {len(rows)} rounds, {failed} not measured, {missed} expectations missed, "
        f"at most {worst:.1f} times the roofline"
    )
    raise typer.Exit(1 if failed or missed else 0)


if __name__ == "__main__":
    typer.run(main)
