"""The comparison with the public package: what is run, what is extrapolated, what is no result."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet_files import Fleet, make_fleet, parse_size
from benchmarks.our_side import run_flagged
from benchmarks.peer import Plan, check_ks, check_means, cpu_seconds, describe_groups, make_plan
from benchmarks.sides import BenchmarkError, ask_side

GB = 10**9


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return make_fleet(parse_size("6x1000"), tmp_path / "fleet")


@pytest.fixture
def result(fleet: Fleet, tmp_path: Path) -> dict[str, list[float]]:
    ks, labels, models = run_flagged(fleet.drifted, fleet.reference, fleet.weights)
    for group, model in enumerate(models):
        (tmp_path / f"{group}.safetensors").write_bytes(model)
    return {"ks": ks, "labels": labels}


def test_what_is_quick_is_run_as_often_as_asked(fleet: Fleet) -> None:
    plan = make_plan(fleet, ks_s=1.0, limit_s=900, free_bytes=GB, n_runs=5)
    assert plan == Plan(5, 6, fits=True, n_values=1000, note="whole runs")


def test_all_runs_together_stay_within_the_limit_and_it_is_said(fleet: Fleet) -> None:
    plan = make_plan(fleet, ks_s=50.0, limit_s=900, free_bytes=GB, n_runs=5)
    assert (plan.n_runs, plan.n_ks) == (3, 6)
    assert "3 for the limit" in plan.note


def test_a_run_past_the_limit_is_extrapolated_and_it_is_said(fleet: Fleet) -> None:
    plan = make_plan(fleet, ks_s=200.0, limit_s=900, free_bytes=GB, n_runs=5)
    assert (plan.n_runs, plan.n_ks, plan.fits) == (1, 3, True)
    assert "extrapolated from 3 clients" in plan.note


def test_what_does_not_fit_into_memory_is_not_run(fleet: Fleet) -> None:
    plan = make_plan(fleet, ks_s=1.0, limit_s=900, free_bytes=1000, n_runs=5)
    assert not plan.fits
    assert "does not fit" in plan.note


def test_clients_whose_ks_was_not_run_count_as_the_timed_ones() -> None:
    plan = Plan(1, 2, fits=True, n_values=100, note="")
    run = {"cpu_s": 10.0, "ks_seconds": [3.0, 5.0]}
    assert cpu_seconds(run, plan, n_clients=5, n_parameters=100) == 10.0 + 3 * 4.0


def test_nothing_but_ks_counts_where_the_rest_does_not_fit() -> None:
    plan = Plan(1, 2, fits=False, n_values=50, note="")
    assert cpu_seconds({"ks_seconds": [3.0, 5.0]}, plan, n_clients=5, n_parameters=100) == 5 * 8.0


def test_another_ks_is_no_result(fleet: Fleet) -> None:
    with pytest.raises(BenchmarkError, match=r"KS\| differs by 1\.0e-09"):
        check_ks([0.25], [0.25 + 1e-9], n_values=1000, fleet=fleet)


def test_the_sign_of_a_ks_is_not_compared(fleet: Fleet) -> None:
    assert check_ks([-0.25], [0.25], n_values=1000, fleet=fleet) == 0.0


def test_our_group_means_are_those_of_sums_in_float64(
    fleet: Fleet, result: dict[str, list[float]], tmp_path: Path
) -> None:
    assert result["labels"] == [0, 1, 0, 1, 0, 1]
    assert check_means(fleet, result, tmp_path) < 1e-7


def test_another_group_mean_is_no_result(
    fleet: Fleet, result: dict[str, list[float]], tmp_path: Path
) -> None:
    wrong = np.zeros(1000, np.float32)
    wrong.tofile(tmp_path / "1.f32")
    with pytest.raises(BenchmarkError, match="group mean is off"):
        check_means(fleet, result, tmp_path)


def test_groups_that_mix_both_drifts_are_counted() -> None:
    assert describe_groups([0, 0, 1], [0, 1, 1]) == (
        "2 of 2, 1 clients, 1 mix both drifts [0, 0, 1]"
    )


def test_a_side_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(BenchmarkError, match=r"^raise .* ended with 1: ValueError: too small$"):
        ask_side([sys.executable, "-c", "raise ValueError('too small')"], {})
