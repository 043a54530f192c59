from __future__ import annotations

from typing import Any

from benchmarks.comparison_tables import matrix


def row(method: str, seed: int, drifted_f1: float | None, scenario: str = "a/b") -> dict[str, Any]:
    return {"scenario": scenario, "method": method, "seed": seed, "drifted_f1": drifted_f1}


def test_a_cell_is_mean_and_spread_over_seeds() -> None:
    lines = matrix([row("clma", 0, 0.5), row("clma", 1, 0.7), row("fedavg", 0, 0.1)], "drifted_f1")
    assert lines[2:] == ["| clma | **0.600** ± 0.141 |", "| fedavg | 0.100 (1) |"]


def test_who_is_told_the_truth_is_not_the_best() -> None:
    lines = matrix([row("oracle", 0, 0.9), row("clma", 0, 0.5)], "drifted_f1")
    assert lines[2:] == ["| oracle | 0.900 |", "| clma | **0.500** |"]


def test_what_was_not_run_is_a_dash() -> None:
    lines = matrix([row("clma", 0, 0.5), row("fedavg", 0, 0.6, "c/d")], "drifted_f1")
    assert lines[2:] == ["| clma | **0.500** | - |", "| fedavg | - | **0.600** |"]


def test_a_figure_that_nobody_has_is_no_table() -> None:
    assert matrix([row("clma", 0, None)], "drifted_f1") == []
