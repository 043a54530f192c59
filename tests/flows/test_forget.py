"""A plant is forgotten with one command: in the ledger, in MLflow and in Prefect."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clma.ledger.federation import Federation
from flows._mentions import mention_of
from tests.flows import fleet
from tests.flows.conftest import Desk
from tests.flows.test_nightly import options

pytestmark = pytest.mark.slow

GONE = "harbour-3"


@pytest.fixture
def plants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are found in no file by chance."""
    names = {client_id: f"harbour-{client_id[1:]}" for client_id in fleet.CLIENTS}
    ways = {names[client_id]: way for client_id, way in fleet.WAYS.items()}
    monkeypatch.setattr(fleet, "CLIENTS", tuple(names.values()))
    monkeypatch.setattr(fleet, "WAYS", ways)


@pytest.fixture
def stocked(plants: None, desk: Desk) -> Desk:
    """A desk whose tasks keep their results in its folder."""
    desk.environment["PREFECT_RESULTS_LOCAL_STORAGE_PATH"] = str(desk.folder / "storage")
    return desk


def files_naming(folder: Path) -> set[str]:
    mention = re.compile(mention_of(GONE).encode())
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {
        str(p.relative_to(folder))
        for p in files
        if mention.search(p.read_bytes()) or mention.search(str(p).encode())
    }


def shown_by_prefect(desk: Desk, run_ids: list[str]) -> str:
    """Return what the pages of some runs, and of the accounts of nights, say."""
    of_runs = {"flow_run_id": {"any_": run_ids}}
    logs = desk.post("/logs/filter", {"logs": of_runs})
    accounts = desk.post("/artifacts/filter", {"artifacts": of_runs})
    newest = desk.post("/artifacts/latest/filter", {})
    return "\n".join([*(log["message"] for log in logs), str(accounts), str(newest)])


def test_a_forgotten_plant_is_named_nowhere(stocked: Desk) -> None:
    desk = stocked
    assert desk.python("-m", "flows.nightly", *options(desk), "--now").returncode == 0
    assert files_naming(desk.folder / "storage")
    runs = [run["id"] for run in desk.runs()]
    assert f"{GONE}: c0 -> c1" in shown_by_prefect(desk, runs)

    command = desk.python("-m", "flows.forget", *options(desk), GONE, "--reaggregate")

    assert command.returncode == 0, desk.output()
    (desk.folder / "output.log").unlink()
    newest = len(Federation.open(desk.store).entries()) - 1
    assert files_naming(desk.folder / "mlruns") == set()
    assert files_naming(desk.folder / "storage") == set()
    assert files_naming(desk.store) == {f"ledger/{newest:08d}.json"}
    assert GONE not in shown_by_prefect(desk, runs)
    assert desk.runs() == []
    doctor = desk.python("-m", "clma.cli", "doctor", *options(desk))
    assert doctor.returncode == 0, desk.output()


def test_nothing_is_forgotten_while_a_night_runs(stocked: Desk) -> None:
    desk = stocked
    flow = desk.post("/flows/", {"name": "nightly"})
    parameters = {"store": str(desk.store), "federation": desk.federation.name}
    run = desk.post(
        "/flow_runs/",
        {"flow_id": flow["id"], "parameters": parameters, "state": {"type": "RUNNING"}},
    )
    before = len(desk.federation.entries())

    command = desk.python("-m", "flows.forget", *options(desk), GONE)

    assert command.returncode == 1
    assert f"mark_crashed {run['id']}" in desk.output()
    assert len(Federation.open(desk.store).entries()) == before


def test_a_dry_run_removes_nothing(stocked: Desk) -> None:
    desk = stocked
    before = fleet.results_of(desk.store)

    command = desk.python("-m", "flows.forget", *options(desk), GONE, "--dry-run", "--json")

    told = json.loads(desk.output().splitlines()[-1])
    assert command.returncode == 0
    assert (told["client_id"], told["dry_run"], told["tracking_rounds"]) == (GONE, True, 1)
    assert fleet.results_of(desk.store) == before
