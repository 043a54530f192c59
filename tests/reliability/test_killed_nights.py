"""Seeded kills, one in every other phase of the night; `make killtest` does all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.killtest import PHASES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SOME = [*PHASES][::2]


@pytest.fixture(scope="module")
def report(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Kill nights in a process of their own: it forks, and must not have threads."""
    path = tmp_path_factory.mktemp("killtest") / "report.json"
    options = ["--points", str(len(SOME)), "--random", "0", "--commands", "0"]
    options += ["--phases", ",".join(SOME)]
    places = ["--prefect-api", prefect_api, "--report", str(path)]
    command = [sys.executable, "-m", "tests.reliability.killtest", *options, *places]
    subprocess.run(command, cwd=ROOT, check=False, timeout=840)
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def test_phases_all_over_the_night_were_killed(report: dict[str, Any]) -> None:
    assert {c["phase"] for c in report["cases"] if c["codes"][0] == -9} >= set(SOME)


def test_restarted_nights_are_as_undisturbed(report: dict[str, Any]) -> None:
    assert {c["name"]: c["differences"] for c in report["cases"] if c["differences"]} == {}


def test_restarted_nights_decide_the_same_bytes(report: dict[str, Any]) -> None:
    assert report["figures"]["distinct_hashes"] == 1


def test_no_accepted_update_is_lost(report: dict[str, Any]) -> None:
    assert report["figures"]["lost_accepted_updates"] == 0


def test_no_run_and_no_version_is_there_twice(report: dict[str, Any]) -> None:
    assert (report["figures"]["double_runs"], report["figures"]["double_versions"]) == (0, 0)


def test_half_written_files_are_swept(report: dict[str, Any]) -> None:
    assert report["figures"]["leftovers"] == 0


def test_alias_always_leads_to_its_weights(report: dict[str, Any]) -> None:
    assert report["figures"]["polls"] > len(report["cases"])
    assert report["figures"]["failed_polls"] == 0
