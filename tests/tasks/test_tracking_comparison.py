"""Cells of a comparison in MLflow: one run each, however often they are published."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from mlflow import MlflowClient

from clma.errors import ConflictError
from clma.simulation.cells import Cell, CellResult, CellRow, RoundRow
from tasks.tracking import Tracking, publish_cell, published_cells
from tasks.tracking.runs import claim_experiment, open_experiment

pytestmark = pytest.mark.slow

CELL = Cell("plant/stagger", "clma", 4, 2, ("drift.gamma=0.2",))
ROW = CellRow(
    *("plant/stagger", "clma", 4, 0.9, 0.8, 0.7, None, 1.0, 3),
    *(0.5, 0.25, None, None, 2.5),
)
ROUNDS = tuple(
    RoundRow(r, client, client == "p2", f1, "c0", client == "p2" and r == 2)
    for r, client, f1 in ((1, "p1", 0.5), (1, "p2", 0.4), (2, "p1", 0.75), (2, "p2", None))
)
RESULT = CellResult(CELL, ROW, ROUNDS)


def runs(tracking: Tracking, name: str) -> list[Any]:
    client = MlflowClient(tracking.uri)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def curve(tracking: Tracking, run_id: str, name: str) -> list[tuple[int, float]]:
    points = MlflowClient(tracking.uri).get_metric_history(run_id, name)
    return [(point.step, point.value) for point in points]


def test_a_run_says_what_the_cell_is_and_came_to(tracking: Tracking) -> None:
    publish_cell(tracking, "compare-facts", "id-1", RESULT)

    (run,) = runs(tracking, "compare-facts")
    assert run.data.params == {
        "scenario": "plant/stagger",
        "method": "clma",
        "seed": "4",
        "rounds": "2",
        "drift.gamma": "0.2",
    }
    tags = {name: run.data.tags[name] for name in ("scenario", "method", "seed")}
    assert tags == {"scenario": "plant/stagger", "method": "clma", "seed": "4"}
    assert (run.data.metrics["drifted_f1"], run.data.metrics["false_alarm_rate"]) == (0.8, 0.25)
    assert not {"final_drifted_f1", "bytes_up"} & set(run.data.metrics)
    assert run.info.status == "FINISHED"


def test_curves_have_the_round_as_their_step(tracking: Tracking) -> None:
    run_id = publish_cell(tracking, "compare-curves", "id-1", RESULT)

    assert curve(tracking, run_id, "f1/stationary") == [(1, 0.5), (2, 0.75)]
    assert curve(tracking, run_id, "f1/drifting") == [(1, 0.4)]
    assert curve(tracking, run_id, "drift_flags") == [(1, 0.0), (2, 1.0)]


def test_publishing_again_makes_no_second_run_and_no_second_point(tracking: Tracking) -> None:
    ids = {publish_cell(tracking, "compare-again", "id-1", RESULT) for _ in range(3)}

    assert len(ids) == len(runs(tracking, "compare-again")) == 1
    assert curve(tracking, *ids, "f1/stationary") == [(1, 0.5), (2, 0.75)]


def test_what_is_published_is_known_by_the_identity(tracking: Tracking) -> None:
    other = dataclasses.replace(RESULT, cell=dataclasses.replace(CELL, seed=5))
    publish_cell(tracking, "compare-known", "id-1", RESULT)
    publish_cell(tracking, "compare-known", "id-2", other)

    assert published_cells(tracking, "compare-known") == {"id-1", "id-2"}
    assert published_cells(tracking, "compare-new") == frozenset()


def test_the_experiment_of_a_federation_is_left_alone(tracking: Tracking) -> None:
    claim_experiment(open_experiment(tracking, "compare-north"), "a federation")
    with pytest.raises(ConflictError, match="'compare-north' holds another federation"):
        publish_cell(tracking, "compare-north", "id-1", RESULT)
