"""The comparison, as `make compare` runs it, on three plants and two rounds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = "tests.clma.simulation.small_scenario:three_plants"
PATIENCE_S = 180.0


@dataclass
class Bench:
    """A folder for one comparison, and the means to disturb it."""

    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.folder / 'mlruns' / 'mlflow.db'}"

    def start(self, *more: str, methods: str = "fedavg", seeds: str = "0:3") -> Any:
        command = [
            *(sys.executable, "-m", "flows.compare", "--scenarios", SMALL),
            *("--methods", methods, "--seeds", seeds, "--workers", "1", "--out", str(self.out)),
            *("--tracking-uri", self.tracking_uri, "--json", *more),
        ]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *more: str, **what: str) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        process = self.start(*more, **what)
        said, told = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said, told

    def executed(self) -> Counter[str]:
        """Return the seeds that were run since the last look."""
        log = self.folder / "executed"
        lines = log.read_text().split() if log.exists() else []
        log.write_text("")
        return Counter(lines)

    def wait_until_run(self, *seeds: str) -> None:
        log, end = self.folder / "executed", time.monotonic() + PATIENCE_S
        while not log.exists() or log.read_text().split() != [*seeds]:
            assert time.monotonic() < end
            time.sleep(0.1)

    def cells(self) -> Sequence[Path]:
        return sorted((self.out / "cells").glob("*.json"))

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.out / "results.parquet").to_pylist()
        return rows

    def runs(self) -> list[Any]:
        client = MlflowClient(self.tracking_uri)
        experiment = client.get_experiment_by_name("compare-out")
        return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


@pytest.fixture
def bench(tmp_path: Path, prefect_api: str, fresh_tracking: Path) -> Iterator[Bench]:
    shutil.copytree(fresh_tracking / "mlruns", tmp_path / "mlruns")
    environment = {
        **os.environ,
        "CLMA_TEST_DESK": str(tmp_path),
        "PREFECT_API_URL": prefect_api,
        "PYTHONPATH": str(ROOT),
    }
    made = Bench(tmp_path, environment)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def test_a_stopped_comparison_goes_on_and_runs_only_what_is_missing(bench: Bench) -> None:
    (bench.folder / "hangs-1").touch()
    first = bench.start()
    bench.wait_until_run("0", "1")
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "interrupted: 1 finished cells are kept, the same command goes on" in told
    assert "Traceback" not in told
    bench.executed()
    (bench.folder / "hangs-1").unlink()

    code, said, _ = bench.run()

    assert code == 0
    assert bench.executed() == {"1": 1, "2": 1}
    assert (json.loads(said)["n_cells"], json.loads(said)["n_run"]) == (3, 2)
    assert [row["seed"] for row in bench.rows()] == [0, 1, 2]
    assert len(bench.runs()) == 3


def test_a_failed_cell_fails_alone(bench: Bench) -> None:
    (bench.folder / "broken-0").touch()
    (bench.folder / "dies-1").touch()

    code, said, told = bench.run()

    assert code == 1
    why = json.loads(said)["failed"]
    assert why == {
        f"{SMALL} fedavg seed 0": "recording 0 is unreadable",
        f"{SMALL} fedavg seed 1": "its process ended with status 3",
    }
    assert "recording 0 is unreadable" in (bench.out / "summary.md").read_text()
    assert "Traceback" not in told
    assert [row["seed"] for row in bench.rows()] == [2]


@pytest.mark.chaos
def test_without_mlflow_the_comparison_goes_on_and_is_published_later(bench: Bench) -> None:
    away = bench.folder / "mlruns-away"
    (bench.folder / "mlruns").rename(away)
    (bench.folder / "mlruns").write_text("no folder")

    code, said, told = bench.run(seeds="0")

    assert code == 0
    assert json.loads(said)["n_unpublished"] == 1
    assert "the comparison goes on without MLflow: " in told
    (bench.folder / "mlruns").unlink()
    away.rename(bench.folder / "mlruns")
    assert json.loads(bench.run(seeds="0")[1])["n_unpublished"] == 0
    assert [run.data.params["seed"] for run in bench.runs()] == ["0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "clma,best"], "wrong usage: preset 'best' is unknown, wanted one of"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_a_wrong_request_is_one_line_and_makes_nothing(
    tmp_path: Path, options: list[str], message: str
) -> None:
    command = [sys.executable, "-m", "flows.compare", "--scenarios", SMALL, "--methods", "clma"]
    command += ["--seeds", "0:2", "--out", str(tmp_path / "out"), *options]

    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out").exists()
