from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.flower_side_by_side import (
    Accuracies,
    accuracies,
    differences,
    run_app,
    table,
    write_fleet,
)
from benchmarks.sides import BenchmarkError
from clma.simulation.scenarios import load_scenario


def run(value: float) -> Accuracies:
    return Accuracies(0.9, value, 0.9, value)


def test_accuracies_are_of_the_last_round_and_from_the_fourth_on() -> None:
    fleet = load_scenario("digits/stagger", 0)
    drifts = [c in fleet.drifted_clients for c in fleet.client_ids]
    rounds = [[0.1 * n if one else 1.0 for one in drifts] for n in range(1, 6)]

    found = accuracies(fleet, rounds)

    assert found == Accuracies(1.0, pytest.approx(0.45), 1.0, 0.5)


def test_a_fleet_without_drift_has_no_drifted_accuracy() -> None:
    fleet = load_scenario("digits/stationary", 0)

    assert accuracies(fleet, [[0.5] * 10] * 4).drifted is None


def test_seeds_are_one_line_with_their_spread() -> None:
    lines = table({("digits/stagger", "clma"): [run(0.5), run(0.7)]})

    assert lines[-1].endswith("| 0.600 ± 0.141 | 0.600 ± 0.141 |")


def test_differences_are_seed_by_seed() -> None:
    results = {("s", "clma"): [run(0.5), run(0.9)], ("s", "fed-clma"): [run(0.6), run(0.5)]}

    assert list(differences(results)) == [
        "s stationary: +0.000, behind in 0 of 2 seeds",
        "s drifted: +0.150, behind in 1 of 2 seeds",
    ]


def test_the_file_holds_what_every_node_sees(tmp_path: Path) -> None:
    fleet = load_scenario("digits/stagger", 0)
    write_fleet(fleet, tmp_path / "fleet.npz")

    with np.load(tmp_path / "fleet.npz") as file:
        x, y = fleet.training_windows(fleet.client_ids[3], 7)
        np.testing.assert_array_equal(file["train-x-3-7"], x)
        np.testing.assert_array_equal(file["train-y-3-7"], y)


def test_a_missing_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="`make bench-flower` makes it"):
        run_app(tmp_path / "python", "clma", load_scenario("digits/stagger", 0), 0)


def test_training_follows_the_slope_of_the_loss() -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("ray")
    from benchmarks.flower_side import _gradient, initial_parameters, losses

    model = {k: v.astype(float) for k, v in initial_parameters(0, 64).items()}
    rng = np.random.default_rng(0)
    x, y = rng.random((5, 64)), rng.integers(0, 10, 5)
    gradient, loss = _gradient(model, x, y)

    moved = {k: v - 1e-6 * gradient[k] for k, v in model.items()}
    expected = loss - 1e-6 * sum((g**2).sum() for g in gradient.values())
    assert losses(moved, x, y).mean() == pytest.approx(expected, abs=1e-10)
