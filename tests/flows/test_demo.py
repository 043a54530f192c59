"""The demo, as `make demo` runs it, with few rounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient

from clma.ledger.federation import Federation
from clma.ledger.tables import TABLE_NAMES, read_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KEYS = {
    *("store", "federation", "mlflow_uri", "prefect_home", "rounds", "preset", "seed"),
    *("stationary_f1", "drifted_f1", "final_stationary_f1", "final_drifted_f1"),
    *("ari", "n_cohorts", "detector_recall", "false_alarm_rate", "seconds"),
}


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "flows.demo", "--rounds", "4", "--out", str(out), "--json", *more]


NOT_THE_USERS = {"PREFECT_HOME", "MPLCONFIGDIR", "PREFECT_API_URL", "MLFLOW_TRACKING_URI"}
"""Set for the tests, or by tests that ran before in this process."""


def environment(**more: str) -> dict[str, str]:
    """Return what a user's shell has: none of the places that the tests set."""
    kept = {k: v for k, v in os.environ.items() if k not in NOT_THE_USERS}
    return {**kept, **more}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Interrupt a demo after its first round, start it again, and return what it prints."""
    out = tmp_path_factory.mktemp("demo")
    home = tmp_path_factory.mktemp("home")
    shell = environment(HOME=str(home))
    first = subprocess.Popen(command(out), cwd=ROOT, env=shell, stdout=subprocess.PIPE)
    ledger = out / "federations" / "demo" / "ledger"
    end = time.monotonic() + 240
    while len([*ledger.glob("*.json")]) < 5 and time.monotonic() < end:
        time.sleep(0.2)
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130
    again = subprocess.run(
        command(out), cwd=ROOT, env=shell, stdout=subprocess.PIPE, timeout=280, check=True
    )
    return {**json.loads(again.stdout), "home": home}


def test_result_has_the_promised_keys(facts: dict[str, Any]) -> None:
    assert set(facts) >= KEYS
    assert facts["rounds"] == 4


def test_nothing_is_written_to_the_users_home(facts: dict[str, Any]) -> None:
    assert [*facts["home"].rglob("*")] == []


def test_every_round_is_decided_on_disk(facts: dict[str, Any]) -> None:
    federation = Federation.open(facts["store"], facts["federation"])
    for round_num in range(1, 5):
        for name in TABLE_NAMES:
            rows = read_rows(federation.store, round_num, name)
            assert rows or name == "cohorting"
    assert federation.state().round_num == 5


def test_both_drifted_plants_of_round_3_left_the_root(facts: dict[str, Any]) -> None:
    rows = read_rows(Federation.open(facts["store"]).store, 3, "assignments")
    moved = {row.client_id for row in rows if row.cohort_after != row.cohort_before}
    assert moved == {"plant-03", "plant-04"}


def test_every_cohort_has_a_champion_that_predicts(facts: dict[str, Any]) -> None:
    mlflow.set_tracking_uri(facts["mlflow_uri"])
    state = Federation.open(facts["store"]).state()
    windows = np.zeros((3, 17, 30), np.float32)
    for cohort in state.active_cohorts():
        name = f"models:/{facts['federation']}.{cohort.cohort_id}@champion"
        probabilities = mlflow.pyfunc.load_model(name).predict(windows)
        assert probabilities.shape == (3, 5)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_one_run_a_night_with_its_scores(facts: dict[str, Any]) -> None:
    client = MlflowClient(facts["mlflow_uri"])
    experiment = client.get_experiment_by_name(facts["federation"])
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    rounds = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    assert len(rounds) == 4
    assert all(0 < r.data.metrics["f1/stationary"] <= 1 for r in rounds)


def test_another_request_does_not_continue_a_demo(facts: dict[str, Any]) -> None:
    out = Path(facts["store"]).parents[1]
    refused = subprocess.run(
        command(out, "--seed", "9", "--federation", "demo"),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "holds a demo with other settings" in refused.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--recipe", "moon"], 2, "wrong usage: "),
        (["--recipe", "pronto", "--data", "nowhere.parquet"], 2, "nowhere.parquet"),
        (["--preset", "best"], 2, "preset 'best' is unknown"),
        (["--rounds", "0"], 2, "--rounds"),
        (["--set", "drift.gamma=-1"], 2, "drift.gamma"),
    ],
)
def test_wrong_request_is_one_line(
    tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    refused = subprocess.run(
        [*command(tmp_path), *options],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == code
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "federations" / "demo" / "ledger").exists()
