"""The example app for Flower: its drifts are found, whoever the nodes are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from clma.adapters.flower import CLMA
from tests.clma.adapters.flower.crowd import Crowd, act_as_server_app

APP = Path(__file__).parents[2] / "examples" / "flower_app"


@pytest.fixture
def drift_app(monkeypatch: pytest.MonkeyPatch) -> Any:
    act_as_server_app(monkeypatch)
    monkeypatch.syspath_prepend(APP)
    import drift_app.client_app

    return drift_app.client_app


def lived(client_app: Any, node_ids: list[int]) -> tuple[list[str], list[float]]:
    """Run the app on nodes of these numbers; return cohorts by partition and accuracies."""
    from drift_app.task import new_model

    contexts = {
        node_id: Context(1, node_id, {"partition-id": k}, RecordDict(), {})
        for k, node_id in enumerate(node_ids)
    }

    def answer(message: Any) -> Any:
        does = {"train": client_app.train, "evaluate": client_app.evaluate}
        return does[message.metadata.message_type](message, contexts[message.metadata.dst_node_id])

    strategy = CLMA(min_available_nodes=len(node_ids))
    result = strategy.start(Crowd(dict.fromkeys(node_ids, answer)), new_model(), num_rounds=10)
    accuracies = [float(m["accuracy"]) for m in result.evaluate_metrics_clientapp.values()]
    return [strategy.cohorts[f"node-{n}"] for n in node_ids], accuracies


def test_opposite_drifts_end_in_cohorts_of_their_own(drift_app: Any) -> None:
    cohorts, accuracies = lived(drift_app, list(range(1, 11)))

    assert cohorts == ["c0", "c0", *["c1", "c2"] * 4]
    assert accuracies[-1] > 0.9


def test_numbers_of_nodes_change_no_accuracy(drift_app: Any) -> None:
    _, as_they_come = lived(drift_app, list(range(1, 11)))
    _, shuffled = lived(drift_app, [70, 3, 99, 12, 58, 1, 40, 77, 6, 21])

    assert shuffled == pytest.approx(as_they_come, abs=0.01)


@pytest.mark.slow
def test_the_app_runs_in_the_simulation_engine(tmp_path: Path) -> None:
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    root = {"PYTHONPATH": str(APP.parents[1])}
    done = subprocess.run(
        [sys.executable, "simulate.py"],
        cwd=APP,
        env={**os.environ, **quiet, **root, "FLWR_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    [verdict] = [line for line in done.stdout.splitlines() if line.startswith("accuracy")]
    assert verdict.endswith("; c0: 2 nodes, c1: 4 nodes, c2: 4 nodes")
