"""A night decides the same wherever its tasks run."""

from __future__ import annotations

import datetime as dt
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from clma.errors import InvalidConfigError, MissingExtraError
from clma.ledger.federation import Federation
from clma.night import close_round
from flows._task_runner import VARIABLE, chosen_task_runner
from tests.flows.conftest import Desk
from tests.flows.fleet import results_of

HAS_DASK = importlib.util.find_spec("prefect_dask") is not None
HAS_RAY = importlib.util.find_spec("prefect_ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="the extra [ray] is not installed")
needs_dask = pytest.mark.skipif(not HAS_DASK, reason="the extra [dask] is not installed")


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        (None, ThreadPoolTaskRunner),
        ("", ThreadPoolTaskRunner),
        ("threads", ThreadPoolTaskRunner),
        ("processes", ProcessPoolTaskRunner),
    ],
)
def test_the_environment_names_the_runner(
    monkeypatch: pytest.MonkeyPatch, choice: str | None, kind: type
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if choice is not None:
        monkeypatch.setenv(VARIABLE, choice)

    assert type(chosen_task_runner()) is kind


@needs_dask
def test_a_scheduler_is_named_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tcp://scheduler:8786")
    runner: Any = chosen_task_runner()
    assert runner.address == "tcp://scheduler:8786"


def test_a_runner_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "threds")
    with pytest.raises(InvalidConfigError, match="CLMA_TASK_RUNNER is 'threds', wanted threads"):
        chosen_task_runner()


@pytest.mark.parametrize("extra", ["dask", "ray"])
def test_a_runner_that_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    monkeypatch.setenv(VARIABLE, extra)
    monkeypatch.setitem(sys.modules, f"prefect_{extra}", None)
    monkeypatch.setitem(sys.modules, f"prefect_{extra}.task_runners", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'clma\[{extra}\]'"):
        chosen_task_runner()


def decided(store: Path) -> tuple[dict[str, str], Any]:
    """Return the digests of what round 2 decided, and the state that it led to."""
    state = Federation.open(store).state_at_commit(2)
    return results_of(store), (state.clients, state.cohorts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [
        # Threads are what every other night of the tests runs on.
        *(pytest.param(choice, marks=pytest.mark.chaos) for choice in ("threads", "processes")),
        pytest.param("dask", marks=needs_dask),
        pytest.param("ray", marks=[needs_ray, pytest.mark.chaos]),
    ],
)
def test_a_night_is_the_same_on_every_runner(desk: Desk, choice: str) -> None:
    library = desk.folder / "library"
    shutil.copytree(desk.store, library)
    close_round(Federation.open(library), now=dt.datetime.now(dt.UTC), force=True)
    desk.environment[VARIABLE] = choice
    desk.environment["CLMA_SHARDS"] = "3"

    night = desk.python(
        *("-m", "flows.nightly", "--store", str(desk.store), "--federation", desk.federation.name),
        *("--tracking-uri", desk.tracking.uri, "--now"),
    )

    assert night.returncode == 0, desk.output()
    assert decided(desk.store) == decided(library)
    assert len(Federation.open(desk.store).state().cohorts) == 3
    assert not list(desk.store.rglob("*.bin"))


@pytest.mark.slow
def test_a_command_with_a_wrong_runner_is_one_line(desk: Desk) -> None:
    desk.environment[VARIABLE] = "threds"
    where = ("--store", str(desk.store), "--federation", desk.federation.name)

    night = desk.python("-m", "flows.nightly", *where)

    assert night.returncode == 1
    assert "failed: CLMA_TASK_RUNNER is 'threds'" in desk.output()
    assert "Traceback" not in desk.output()
