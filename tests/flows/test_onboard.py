"""Onboarding as an operator runs it: look, put in force, run a night, form anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from clma.ledger.federation import Federation
from clma.records import Phase
from tests.clma.ledger.fleet import drop, model
from tests.clma.onboarding.fleet import cohorts_of, found, send, send_all, signature

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0


@dataclass
class Office:
    """A federation that waits for its cohorts, and the commands."""

    federation: Federation
    environment: dict[str, str]

    def run(self, flow: str, *more: str) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", f"flows.{flow}", "--store", self.federation.store.url),
                *("--federation", "fleet", *more),
            ],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def office(tmp_path: Path, prefect_api: str) -> Office:
    made = found(tmp_path / "store", tmp_path)
    environment = {
        **os.environ,
        "PREFECT_API_URL": prefect_api,
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    return Office(made, environment)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_fleet_is_looked_at_then_onboarded_and_lives(office: Office, tmp_path: Path) -> None:
    fleet = office.federation
    code, _, told = office.run("nightly")
    assert (code, "python -m flows.onboard --store" in last_line(told)) == (1, True)

    send_all(fleet, leave_out=("p5",))
    keys = fleet.store.list()

    code, said, _ = office.run("onboard", "--picture", str(tmp_path / "cohorts.png"))
    assert (code, "nothing was changed" in said) == (0, True)
    assert "client 'p5': no signature has come" in said
    assert (tmp_path / "cohorts.png").read_bytes().startswith(b"\x89PNG")
    assert fleet.store.list() == keys

    code, _, told = office.run("onboard", "--apply")
    assert (code, "1 of 6 clients have no usable signature" in last_line(told)) == (1, True)
    assert fleet.state().phase is Phase.CREATED

    send(fleet, "p5", signature("south", 5))
    code, said, _ = office.run("onboard", "--apply")
    assert (code, "round 1 is open with these cohorts" in said) == (0, True)
    assert {c for c, cohort in cohorts_of(fleet).items() if cohort == "c1"} == {"p4", "p5"}

    for client_id in fleet.state().clients:
        drop(fleet, client_id, model(0.5))
    code, said, told = office.run("nightly", "--now")
    assert (code, "cohorts c0, c1" in said) == (0, True), told


def test_cohorts_are_formed_anew_when_the_next_round_opens(office: Office) -> None:
    fleet = office.federation
    send_all(fleet)
    assert office.run("onboard", "--apply")[0] == 0
    send(fleet, "p3", signature("south", 33))

    code, said, told = office.run("onboard", "--apply")
    assert (code, said, "give --apply --again" in last_line(told)) == (1, "", True)

    code, said, _ = office.run("onboard", "--apply", "--again", "--json")
    assert (code, json.loads(said)["in_force_from"]) == (0, 2)
    assert cohorts_of(fleet)["p3"] == "c0"

    for client_id in fleet.state().clients:
        drop(fleet, client_id, model(0.5))
    assert office.run("nightly", "--now")[0] == 0
    assert cohorts_of(fleet)["p3"] == "c1"
