from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from clma.ledger.federation import Federation
from tasks.tracking import Tracking, resolve_tracking
from tests.flows.fleet import found, results_of

INSTRUMENTED = Path(__file__).with_name("instrumented.py")
ROOT = INSTRUMENTED.parents[2]
PATIENCE_S = 180.0


@pytest.fixture(scope="session")
def fresh_tracking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracking folder with its tables made, to be copied: making them takes seconds."""
    from tasks.tracking.runs import open_experiment

    root = tmp_path_factory.mktemp("tracking")
    open_experiment(resolve_tracking(root), "template")
    return root


@dataclass
class Desk:
    """One federation, its Prefect and MLflow, and the means to disturb a night."""

    folder: Path
    federation: Federation
    tracking: Tracking
    api: httpx.Client
    environment: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.folder / "fleet" / "store"

    @property
    def log(self) -> Path:
        return self.folder / "executed"

    def executed(self) -> Counter[str]:
        """Return which task bodies were executed since the last look, and how often."""
        lines = self.log.read_text().split() if self.log.exists() else []
        self.log.write_text("")
        return Counter(lines)

    def disturb(self, what: str) -> Path:
        """Put a fault in place; unlink the returned file to repair it."""
        path = self.folder / what
        path.touch()
        return path

    def python(self, *arguments: str, wait: bool = True) -> subprocess.Popen[bytes]:
        """Run a command as an operator would."""
        log = (self.folder / "output.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.started.append(process)
        if wait:
            process.wait(timeout=PATIENCE_S)
        return process

    def night(self, *, wait: bool = True) -> subprocess.Popen[bytes]:
        """Start the nightly flow in a process of its own."""
        return self.python(
            str(INSTRUMENTED), str(self.store), self.federation.name, self.tracking.uri, wait=wait
        )

    def retry(self, run_id: str) -> None:
        """Press retry, as the command line does it."""
        entrypoint = f"{INSTRUMENTED}:nightly"
        self.python("-m", "prefect", "flow-run", "retry", run_id, "--entrypoint", entrypoint)

    def post(self, path: str, values: dict[str, Any]) -> Any:
        """Ask the Prefect API; a busy SQLite answers 503, which is asked again."""
        for _ in range(60):
            answer = self.api.post(path, json=values)
            if answer.status_code != 503:
                answer.raise_for_status()
                return answer.json()
            time.sleep(0.5)
        raise AssertionError(f"{path}: still 503")

    def runs(self) -> Sequence[dict[str, Any]]:
        """Return the federation's flow runs."""
        runs = self.post("/flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
        return [r for r in runs if r["parameters"].get("federation") == self.federation.name]

    def wait_for(self, run_id: str, *states: str) -> dict[str, Any]:
        """Return a run as soon as it is in one of the states."""
        return self.wait(lambda: self._run_in(run_id, states), f"{run_id} in {states}")

    def _run_in(self, run_id: str, states: tuple[str, ...]) -> dict[str, Any] | None:
        run = self.api.get(f"/flow_runs/{run_id}").json()
        return run if run["state"]["type"] in states else None

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        """Return what `look` finds as soon as it finds something."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found_now = look()
            if found_now:
                return found_now
            time.sleep(0.2)
        raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}\n{self.output()}")

    def output(self) -> str:
        """Return what the started commands printed last."""
        return (self.folder / "output.log").read_text()[-8000:]

    def set_quorum(self, quorum: int) -> None:
        """Make the federation anew with another quorum."""
        shutil.rmtree(self.folder / "fleet")
        self.federation = found(
            self.folder / "fleet", self.federation.name, round={"quorum": quorum}
        )

    def results(self) -> dict[str, str]:
        return results_of(self.store)


@pytest.fixture
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, prefect_api: str, fresh_tracking: Path
) -> Iterator[Desk]:
    """A federation with round 2 ready to be closed."""
    name = "f" + "".join(c for c in request.node.name if c.isalnum())[-40:]
    federation = found(tmp_path / "fleet", name)
    shutil.copytree(fresh_tracking / "mlruns", tmp_path / "mlruns")
    environment = {
        **os.environ,
        "CLMA_TEST_DESK": str(tmp_path),
        "PREFECT_API_URL": prefect_api,
        "PYTHONPATH": str(ROOT),
    }
    with httpx.Client(base_url=prefect_api, timeout=30) as api:
        made = Desk(tmp_path, federation, resolve_tracking(tmp_path), api, environment)
        yield made
        for process in made.started:
            process.kill()
            process.wait()
