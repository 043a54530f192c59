from __future__ import annotations

import math

import pytest

from clma.errors import EmptyCohortError, InvalidConfigError
from clma.report.comparison import (
    check_unique,
    curve_of,
    figure_of,
    in_reading_order,
    paired_difference,
    spread,
)
from clma.simulation.cells import RoundRow
from tests.clma.report.rows import row

T_OF_2_SEEDS = 12.706
"""Quantile .975 of Student's t with one degree of freedom, from its tables."""


def test_mean_and_standard_deviation_are_over_seeds() -> None:
    found = figure_of([row("clma", 0, 0.4), row("clma", 1, 0.6), row("clma", 2, 0.8)], "drifted_f1")

    assert found is not None
    assert (found.mean, found.sd, found.n_seeds) == pytest.approx((0.6, 0.2, 3))


def test_scenarios_of_a_seed_count_as_one_draw() -> None:
    rows = [row("clma", s, f1, scenario=n) for s, n, f1 in ((0, "a", 0.2), (0, "b", 0.4))]
    rows += [row("clma", 1, 0.5, scenario="a"), row("clma", 1, 0.7, scenario="b")]

    found = figure_of(rows, "drifted_f1")

    assert found is not None
    # Means of the seeds: .3 and .6.
    assert (found.mean, found.sd, found.n_seeds) == pytest.approx((0.45, 0.3 / math.sqrt(2), 2))


def test_a_single_seed_has_no_spread() -> None:
    assert spread({7: [0.5]}).sd is None


def test_a_figure_that_nobody_has_is_none() -> None:
    assert figure_of([row("clma", 0, None)], "drifted_f1") is None
    with pytest.raises(EmptyCohortError, match="no value"):
        spread({})


def test_differences_are_paired_by_seed_and_not_by_place() -> None:
    rows = [row("clma", 0, 0.9), row("clma", 1, 0.5), row("fedavg", 1, 0.4), row("fedavg", 0, 0.6)]

    found = paired_difference(rows, "clma", "fedavg", "drifted_f1")

    assert found is not None
    # Differences: .3 and .1.
    assert (found.mean, found.sd) == pytest.approx((0.2, 0.2 / math.sqrt(2)))
    assert (found.n_pairs, found.n_won, found.n_lost) == (2, 2, 0)


def test_the_interval_is_students() -> None:
    rows = [row("clma", 0, 0.9), row("fedavg", 0, 0.6), row("clma", 1, 0.5), row("fedavg", 1, 0.4)]

    found = paired_difference(rows, "clma", "fedavg", "drifted_f1")

    assert found is not None
    half = T_OF_2_SEEDS * 0.1  # sd / sqrt(2) = .1
    assert (found.low, found.high) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-4)


def test_missing_cells_leave_their_pairs_out() -> None:
    rows = [
        *(row("clma", 0, 0.9), row("fedavg", 0, 0.6)),
        row("clma", 1, 0.1),
        row("fedavg", 2, 0.9),
        *(row("clma", 3, None), row("fedavg", 3, 0.9)),
        *(row("clma", 4, 0.1, scenario="a"), row("fedavg", 4, 0.9, scenario="b")),
    ]

    found = paired_difference(rows, "clma", "fedavg", "drifted_f1")

    assert found is not None
    assert (found.n_pairs, found.mean) == (1, pytest.approx(0.3))
    assert (found.low, found.high) == (None, None)


def test_methods_without_a_common_cell_have_no_difference() -> None:
    rows = [row("clma", 0, 0.9), row("fedavg", 1, 0.6)]
    assert paired_difference(rows, "clma", "fedavg", "drifted_f1") is None


def test_equal_figures_are_neither_won_nor_lost() -> None:
    rows = [row("clma", 0, 0.1 + 0.2), row("fedavg", 0, 0.3)]
    rows += [row("clma", 1, 0.5), row("fedavg", 1, 0.6)]

    found = paired_difference(rows, "clma", "fedavg", "drifted_f1")

    assert found is not None
    assert (found.n_pairs, found.n_won, found.n_lost) == (2, 0, 1)


def test_the_other_way_round_everything_changes_its_sign() -> None:
    rows = [row("clma", 0, 0.9), row("fedavg", 0, 0.6), row("clma", 1, 0.5), row("fedavg", 1, 0.7)]

    there = paired_difference(rows, "clma", "fedavg", "drifted_f1")
    back = paired_difference(rows, "fedavg", "clma", "drifted_f1")

    assert there is not None
    assert back is not None
    assert (there.mean, there.sd, there.n_won) == pytest.approx((-back.mean, back.sd, back.n_lost))
    assert (there.low, there.high) == pytest.approx((-(back.high or 0), -(back.low or 0)))


def test_the_order_of_rows_changes_nothing() -> None:
    rows = [row(m, s, f1) for s in range(6) for m, f1 in (("clma", 0.1 * s), ("fedavg", 0.07 * s))]

    assert paired_difference(rows, "clma", "fedavg", "drifted_f1") == paired_difference(
        rows[::-1], "clma", "fedavg", "drifted_f1"
    )


def test_a_cell_that_is_there_twice_is_refused() -> None:
    check_unique([row("clma", 0, 0.5), row("clma", 1, 0.5), row("clma", 0, 0.5, scenario="a")])
    with pytest.raises(InvalidConfigError, match="clma seed 0: 2 rows, wanted 1"):
        check_unique([row("clma", 0, 0.5), row("clma", 0, 0.6)])


def test_ours_is_read_first_and_the_truth_last() -> None:
    methods = ["oracle", "ifca", "local", "cfl", "fedavg", "clma", "ifca"]
    assert in_reading_order(methods) == ("clma", "fedavg", "local", "ifca", "cfl", "oracle")


def test_a_curve_is_the_mean_over_clients_then_over_seeds() -> None:
    def at(f1: float | None, *, drifting: bool = True) -> RoundRow:
        return RoundRow(1, "p", drifting, f1, "c0", None)

    rounds = [(0, at(0.2)), (0, at(0.4)), (1, at(0.9)), (1, at(None)), (1, at(0.1, drifting=False))]

    assert curve_of(rounds, drifting=True) == {1: pytest.approx(0.6)}
    assert curve_of(rounds, drifting=False) == {1: pytest.approx(0.1)}
