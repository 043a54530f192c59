"""Everything that serves a federation is killed; the next night runs without anybody's help."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from clma.ledger.federation import Federation
from clma.records import Phase
from tests.flows.fleet import found
from tests.tasks.proxy import proxy_of

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
LIMIT_S = 600.0
"""Within this the next night has to begin; the place of a killed one is kept for 300 s."""


@dataclass
class Checkout:
    """A copy of the project with a `.prefect` of its own, and what was started in it."""

    folder: Path
    federation: Federation
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def serve(self) -> httpx.Client:
        """Serve the federation; return its Prefect API."""
        log = self.folder / f"serve-{len(self.started)}.log"
        options = ["--store", self.federation.store.url, "--federation", self.federation.name]
        with log.open("wb") as output:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "deployments.serve", *options],
                    cwd=self.folder,
                    env={**os.environ, "PYTHONPATH": str(self.folder)},
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        said = wait(lambda: re.search(r"pages (http\S+),", log.read_text()), log.read_text)
        return httpx.Client(base_url=f"{said[1]}/api", timeout=30)

    def processes(self) -> list[int]:
        """Return everything that was started in the copy, and what those started."""
        found_now = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if path.readlink() == self.folder:
                    found_now.append(int(path.parent.name))
            except OSError:
                continue
        return [pid for pid in found_now if pid != os.getpid()]

    def kill(self) -> None:
        """End it all, without a chance to say goodbye."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.wait()


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for part in ("clma", "tasks", "flows", "deployments"):
        shutil.copytree(ROOT / part, folder / part)
    made = Checkout(folder.resolve(), found(tmp_path / "fleet", "plants"))
    yield made
    made.kill()


def wait(look: Callable[[], Any], tell: Callable[[], str], limit_s: float = 240.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            found_now = look()
        except httpx.HTTPError:
            found_now = None
        if found_now:
            return found_now
        time.sleep(0.5)
    raise AssertionError(f"waited {limit_s:.0f} s\n{tell()}")


def ask(api: httpx.Client, path: str, values: dict[str, Any]) -> Any:
    answer = wait(lambda: (a := api.post(path, json=values)).status_code < 300 and a, str)
    return answer.json()


def start_night(api: httpx.Client, checkout: Checkout, tracking_uri: str) -> str:
    name = {"deployments": {"name": {"any_": [checkout.federation.name]}}}
    (deployment,) = wait(lambda: ask(api, "/deployments/filter", name), str)
    parameters = {
        "store": checkout.federation.store.url,
        "federation": checkout.federation.name,
        "now": True,
        "tracking_uri": tracking_uri,
    }
    path = f"/deployments/{deployment['id']}/create_flow_run"
    return str(ask(api, path, {"parameters": parameters})["id"])


def state_of(api: httpx.Client, run_id: str) -> str:
    return str(api.get(f"/flow_runs/{run_id}").json()["state"]["type"])


def test_the_night_after_a_kill_of_everything_runs_by_itself(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "900")
    with proxy_of("http://127.0.0.1:9") as proxy:
        proxy.fault = "hang"
        api = checkout.serve()
        killed = start_night(api, checkout, proxy.address)
        wait(lambda: proxy.n_connections, lambda: state_of(api, killed))
        checkout.kill()

    begun = time.monotonic()
    api = checkout.serve()
    following = start_night(api, checkout, f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    wait(
        lambda: state_of(api, following) == "COMPLETED",
        lambda: f"the night is {state_of(api, following)}",
        LIMIT_S,
    )
    sys.stderr.write(f"\nthe next night was done after {time.monotonic() - begun:.0f} s\n")
    state = Federation.open(checkout.federation.store.url).state()
    assert (state.round_num, state.phase) == (3, Phase.OPEN)
    wait(lambda: state_of(api, killed) == "CRASHED", lambda: state_of(api, killed), LIMIT_S)
    sys.stderr.write(f"the killed one is crashed after {time.monotonic() - begun:.0f} s\n")
