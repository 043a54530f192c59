from __future__ import annotations

from statistics import fmean

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from clma.simulation.cells import Cell, CellResult
from clma.simulation.run_cell import run_cell


@pytest.fixture(scope="module")
def result() -> CellResult:
    return run_cell(Cell("digits/dirichlet-0.5", "fedavg", 0, n_rounds=2))


def test_area_is_measured_in_the_last_round_only(result: CellResult) -> None:
    measured = {row.round_num for row in result.rounds if row.auc_roc is not None}

    assert measured == {2}


def test_figures_of_the_last_round_are_means_over_its_clients(result: CellResult) -> None:
    last = [row for row in result.rounds if row.round_num == 2]

    assert len(last) == 10
    assert result.row.final_accuracy == pytest.approx(fmean(row.accuracy or 0 for row in last))
    assert result.row.final_auc_roc == pytest.approx(fmean(row.auc_roc or 0 for row in last))


def test_cohorts_of_clients_that_differ_by_degrees_are_not_judged(result: CellResult) -> None:
    assert result.row.ari is None
