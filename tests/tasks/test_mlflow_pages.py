from __future__ import annotations

import json

from tasks.mlflow_pages import ROUNDS_VIEW, experiment_page, rounds_view, run_page


def test_a_view_is_named_only_where_it_is() -> None:
    without = experiment_page("http://h", "7", has_view=False)

    assert without == "http://h/#/experiments/7/runs?workflowType=machine_learning"
    assert experiment_page("http://h", "7", has_view=True) == f"{without}&viewStateShareKey=rounds"


def test_the_view_is_stored_where_mlflow_looks_for_shared_views() -> None:
    assert ROUNDS_VIEW == "mlflow.sharedViewState.rounds"
    assert "metrics.`drifted`" in json.loads(rounds_view())["selectedColumns"]


def test_a_run_has_a_page_of_its_own() -> None:
    assert run_page("http://h", "7", "r1").startswith("http://h/#/experiments/7/runs/r1?")
