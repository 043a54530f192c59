"""The calibration, as an operator runs it, on a federation that put opposites together."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clma.calibration.springs import TOGETHER, digest_of, live

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0


@dataclass
class Office:
    """A federation, a folder for what is learned of it, and the command."""

    store: Path
    out: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "flows.calibrate", "--store", str(self.store)),
                *("--federation", "springs", "--out", str(self.out), *more),
            ],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *more: str) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        process = self.start(*more)
        said, told = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said, told

    def nights(self) -> list[Path]:
        return sorted((self.out / "nights").glob("*.safetensors"))


@pytest.fixture(scope="module")
def federation_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("springs")
    live(folder, cohorting={**TOGETHER, "recall": False})
    return folder / "store"


@pytest.fixture
def office(tmp_path: Path, federation_folder: Path, prefect_api: str) -> Any:
    environment = {**os.environ, "PREFECT_API_URL": prefect_api, "PYTHONPATH": str(ROOT)}
    made = Office(federation_folder, tmp_path / "out", environment)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def test_what_is_proposed_can_be_put_in_force_by_the_printed_command(office: Office) -> None:
    before = digest_of(office.store)

    code, said, told = office.run("--json")

    assert (code, "Traceback" in told) == (0, False)
    facts = json.loads(said)
    (value,) = [p["value"] for p in facts["proposals"] if p["setting"].endswith("pair_threshold")]
    assert (
        office.out / "calibration.toml"
    ).read_text() == f"cohorting.pair_threshold = {value:g}\n"
    assert facts["command"].endswith(f" --set cohorting.pair_threshold={value:g}")
    assert [night["cohorts_again"] for night in facts["nights"]] == [2, 2, 2, 2]
    assert digest_of(office.store) == before

    copy = office.out / "store"
    shutil.copytree(office.store, copy)
    words = facts["command"].replace(str(office.store), str(copy)).split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "clma.cli", *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"cohorting.pair_threshold: -1.0 -> {value}\n"


def test_a_stopped_calibration_goes_on_and_measures_only_what_is_missing(office: Office) -> None:
    first = office.start()
    end = time.monotonic() + PATIENCE_S
    while not office.nights() and time.monotonic() < end:
        time.sleep(0.005)
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=60)
    n_kept = len(office.nights())
    assert first.returncode == 130
    assert f"interrupted: {n_kept} measured rounds are kept, the same command goes on" in told
    assert "Traceback" not in told

    code, said, told = office.run()

    assert code == 0
    assert f"{n_kept} of them measured before; {len(office.nights()) - n_kept} to be" in told
    assert "The recorded nights, decided again" in said


def test_without_a_drift_there_is_nothing_to_learn_from(office: Office, tmp_path: Path) -> None:
    live(tmp_path / "calm", n_rounds=2, drifts=False)
    office.store = tmp_path / "calm" / "store"

    code, said, _ = office.run()

    assert code == 0
    assert said == ("springs: nothing to learn from, nobody was set apart in 2 committed rounds\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--what-if", "drift.z_score=4"], "wrong usage: --what-if 'drift.z_score=4': flags and"),
        (["--what-if", "cohorting.speed=4"], "wrong usage: cohorting.speed: "),
        (["--horizon", "0"], "--horizon"),
        (["--out", "STORE/out"], "lies within the federation's folder, which is only read"),
    ],
)
def test_a_wrong_request_is_one_line_and_makes_nothing(
    office: Office, options: list[str], message: str
) -> None:
    before = digest_of(office.store)

    code, _, told = office.run(*(o.replace("STORE", str(office.store)) for o in options))

    assert code == 2
    assert message in told
    assert "Traceback" not in told
    assert not office.out.exists()
    assert digest_of(office.store) == before


def test_a_round_whose_weights_are_gone_is_left_out_and_named(
    office: Office, tmp_path: Path
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(office.store, copy)
    office.store = copy
    shutil.rmtree(copy / "inbox" / "round=000006", ignore_errors=True)
    for path in (copy / "rounds" / "round=000006").rglob("*.safetensors"):
        path.unlink()

    code, said, told = office.run("--json")

    assert (code, "Traceback" in told) == (0, False)
    assert [*json.loads(said)["unread"]] == ["6"]
