"""Rounds that `make bench` measures, and what it expects of them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.engine import Row, expectations, render_table, write_table
from benchmarks.fleet_files import make_fleet, parse_size
from benchmarks.machine import MachineRates, measure_rates, roofline_s
from benchmarks.meter import Reading
from benchmarks.round_side import play_round
from benchmarks.sides import ask_side

GIB = 2**30


def row(size: str, *, cpu_s: float = 1.0, peak: float = GIB / 2, over: float = 0) -> Row:
    return Row(parse_size(size), Reading(1.0, cpu_s, int(peak), int(over)), 0.5, (5, 5))


def missed(*rows: Row) -> list[str]:
    return [name for name, value, bound in expectations(rows) if value > bound]


def test_a_round_moves_both_families_and_nobody_else(tmp_path: Path) -> None:
    fleet = make_fleet(parse_size("20x2000:50%"), tmp_path)
    state = play_round(fleet, tmp_path).state
    cohort_of = {client.client_id: client.cohort_id for client in state.clients.values()}
    assert Counter(cohort_of.values()) == {"c0": 10, "c1": 5, "c2": 5}
    assert {cohort_of[path.stem] for path in fleet.quiet} == {"c0"}


@pytest.mark.slow
def test_a_round_in_a_process_of_its_own_says_what_it_cost(tmp_path: Path) -> None:
    task = {"size": "4x1000", "dir": str(tmp_path)}
    result = ask_side([sys.executable, "-m", "benchmarks.round_side"], task)
    assert result["cohorts"] == {"c1": 2, "c2": 2}
    assert result["cpu_s"] > 0
    assert result["peak_bytes"] > result["over_bytes"]


def test_memory_that_grows_with_the_clients_is_a_miss() -> None:
    """Beside what imports take, which may be more for the larger job."""
    few = row("100x1e6:10%", peak=100 * 2**20, over=10 * 2**20)
    name = "1000x1e6:10%"
    assert missed(few, row(name, peak=200 * 2**20, over=25 * 2**20)) == []
    assert missed(few, row(name, over=26 * 2**20)) == ["RSS at 1,000 clients / at 100"]


def test_a_round_may_take_three_models_and_a_hundred_mebibytes() -> None:
    extra = 100 * 2**20
    assert missed(row("20x1e8", over=1.2e9 + extra)) == []
    assert missed(row("20x1e8", over=1.2e9 + extra + 1)) == ["20x100000000: MiB over imports"]


def test_more_than_three_times_the_floor_is_a_miss() -> None:
    assert missed(row("1000x1e6:10%", cpu_s=1.5)) == []
    assert missed(row("1000x1e6:10%", cpu_s=1.6)) == ["1,000 clients: CPU / roofline"]


def test_the_table_divides_cpu_by_the_roofline() -> None:
    last = render_table([row("10x545290")]).splitlines()[-1]
    assert last == "| 10x545290 | 1.00 | 1.00 | 512 | 0 | 0.02 | 0.500 | 2.0 | 5 + 5 |"


def test_a_table_goes_between_the_marks_of_a_document(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text("a\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nz\n")
    write_table(document, "new")
    assert document.read_text() == "a\n<!-- bench:begin -->\nnew\n<!-- bench:end -->\nz\n"


def test_a_table_without_marks_is_a_file_of_its_own(tmp_path: Path) -> None:
    write_table(tmp_path / "t.md", "new")
    assert (tmp_path / "t.md").read_text() == "new\n"


def test_the_roofline_adds_up_reading_summing_sorting_and_multiplying() -> None:
    rates = MachineRates(4.0, None, 4.0, 1.0, 1.0, 1.0, 1.0)
    # Read: 3 clients and the reference. Summed: 3. Sorted: 2 and the reference. Products: 2 x 3.
    assert roofline_s(parse_size("3x10:67%"), rates) == 10 * (4 + 3 + 3 + 6)


@pytest.mark.slow
def test_every_rate_is_measured(tmp_path: Path) -> None:
    fleet = make_fleet(parse_size("2x1000"), tmp_path)
    rates = measure_rates(fleet.drifted, n_rows=2, n_values=1000)
    assert min(rates.read, rates.copy, rates.sort_float32, rates.sort_float64) > 0
    assert min(rates.gram_float32, rates.gram_float64) > 0
