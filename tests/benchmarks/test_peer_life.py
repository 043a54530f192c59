"""A fleet under the public package: paired with ours, decided by its own strategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peer_life import PEER, PeerFederation, accuracies, run_peer_cell
from benchmarks.sides import BenchmarkError
from clma.simulation.cells import Cell, CellResult, CellRow, RoundRow
from clma.simulation.run_cell import run_cell
from clma.simulation.scenarios import load_scenario

PYTHON = Path(__file__).parents[2] / ".venv-peer/bin/python"


def result(method: str, seed: int, accuracy: float) -> CellResult:
    figures = dict.fromkeys(
        (
            *("stationary_f1", "drifted_f1", "final_stationary_f1", "final_drifted_f1", "ari"),
            *("detector_recall", "false_alarm_rate", "bytes_up", "bytes_down"),
        )
    )
    row = CellRow("digits/stagger", method, seed, n_cohorts=2, seconds=1.0, **figures)
    rounds = tuple(
        RoundRow(n, f"p{d}", bool(d), 0.0, "c0", None, accuracy + 0.1 * d - 0.01 * (5 - n))
        for n in (3, 4, 5)
        for d in (0, 1)
    )
    return CellResult(Cell("digits/stagger", method, seed), row, rounds)


def test_accuracies_are_of_the_last_round_and_from_the_fourth_on() -> None:
    line = accuracies([result("clma", 0, 0.5)])[-1]
    assert line == "| digits/stagger | clma | 0.500 | 0.495 | 0.600 | 0.595 | 2.0 |"


def test_seeds_of_a_method_are_one_line_with_their_spread() -> None:
    lines = accuracies([result("clma", 0, 0.5), result("clma", 1, 0.7), result(PEER, 0, 0.1)])
    assert len(lines) == 4
    assert "0.600 ± 0.141" in lines[2]


def test_absent_environment_is_named(tmp_path: Path) -> None:
    fleet = load_scenario("plant/stationary", 0)
    with pytest.raises(BenchmarkError, match="make bench-peer-life"):
        PeerFederation(tmp_path / "python", fleet, tmp_path)


@pytest.mark.skipif(not PYTHON.exists(), reason="fed-clma is not installed, `make bench-peer-life`")
def test_before_any_drift_the_package_and_fedavg_make_the_same_models() -> None:
    """Equal data, models and batches: nothing but the server differs."""
    theirs = run_peer_cell(Cell("digits/stationary", PEER, 0, 2), PYTHON, None)
    ours = run_cell(Cell("digits/stationary", "fedavg", 0, 2))

    assert [row.accuracy for row in theirs.rounds] == [row.accuracy for row in ours.rounds]
    assert theirs.row.bytes_up == ours.row.bytes_up
