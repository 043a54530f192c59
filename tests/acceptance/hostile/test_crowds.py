"""Many processes at once: every update is recorded once, and a night is decided once."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.records import Phase
from clma.rows import Verdict
from tests.acceptance.hostile import crowd
from tests.acceptance.hostile.fleet import NAME, command, found, night, send_good
from tests.flows.fleet import results_of

pytestmark = pytest.mark.slow

N_TRIES = 20
AHEAD_S = 0.05
"""All are told to begin this much later, so that nobody is there first."""


LOOK_S = 0.1


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(request.param, mp_context=context) as made:
        yield made


def fleet_of(folder: Path, client_ids: list[str]) -> Federation:
    """Make a federation whose model has eight numbers."""
    return found(folder, base=crowd.model(0), clients=client_ids)


@pytest.mark.parametrize("pool", [crowd.N_PROCESSES], indirect=True)
def test_sixteen_processes_record_every_update_once_while_somebody_watches(
    tmp_path: Path, pool: ProcessPoolExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [crowd.client_of(p, n) for p in range(crowd.N_PROCESSES) for n in range(crowd.N_UPDATES)]
    federation = fleet_of(tmp_path, ids)
    store = tmp_path / "store"

    sent = [pool.submit(crowd.send_many, store, tmp_path, p) for p in range(crowd.N_PROCESSES)]
    while not all(future.done() for future in sent):
        assert command("status", "--store", str(store), "--federation", NAME, "--json") == 0
        time.sleep(LOOK_S)
    told = sum((future.result() for future in sent), Counter[str]())

    assert told == {"accepted": len(ids), "duplicate": len(ids)}
    assert capsys.readouterr().err == ""
    rows = night(federation).decision.updates
    assert [(r.client_id, r.verdict, r.reason) for r in rows] == [
        (client_id, Verdict.ACCEPTED, None) for client_id in sorted(ids)
    ]


@pytest.mark.parametrize("pool", [crowd.N_RACING_PROCESSES], indirect=True)
def test_of_two_hundred_racing_updates_of_one_plant_one_is_accepted(
    tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    federation = fleet_of(tmp_path, [crowd.client_of(0, 0)])
    processes = range(crowd.N_RACING_PROCESSES)

    sent = [pool.submit(crowd.race, tmp_path / "store", tmp_path, p) for p in processes]
    told = sum((future.result() for future in sent), Counter[str]())

    assert told == {"accepted": 1, "CONFLICTING_UPDATE": crowd.N_RACERS - 1}
    rows = night(federation).decision.updates
    assert Counter((r.verdict.value, r.reason) for r in rows) == {
        ("accepted", None): 1,
        ("rejected", "CONFLICTING_UPDATE"): crowd.N_RACERS - 1,
    }


@pytest.mark.parametrize("pool", [crowd.N_RACING_PROCESSES], indirect=True)
def test_every_object_that_is_raced_for_has_one_winner(
    tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    """A look and then a write would let two win, once in some hundred times."""
    processes = range(crowd.N_RACING_PROCESSES)
    list(pool.map(abs, processes))
    at = time.time() + AHEAD_S

    runs = [pool.submit(crowd.create_all, tmp_path, process, at) for process in processes]
    won = [(key, str(process)) for process in processes for key in runs[process].result()]

    assert len(won) == crowd.N_OBJECTS
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict(won)


@pytest.mark.parametrize("pool", [2], indirect=True)
def test_two_who_close_a_night_at_once_come_to_one_decision(
    tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    federation = found(tmp_path)
    send_good(federation)
    due = federation.state().deadline
    copies = [tmp_path / f"copy-{i}" for i in range(N_TRIES)]
    for copy in copies:
        shutil.copytree(tmp_path / "store", copy)
    night(federation)
    expected = results_of(tmp_path / "store")

    told = [closed_by_two(pool, copy, due) for copy in copies]

    assert all("closed" in both and set(both) <= {"closed", "RoundStateError"} for both in told)
    for copy in copies:
        assert results_of(copy) == expected
        assert_closed_once(Federation.open(copy))


def closed_by_two(pool: ProcessPoolExecutor, store: Path, now: dt.datetime | None) -> list[str]:
    """Let two processes close the round; return what each was told."""
    at = time.time() + AHEAD_S
    both = [pool.submit(crowd.close, store, now, at) for _ in range(2)]
    return [future.result() for future in both]


def assert_closed_once(federation: Federation) -> None:
    """The ledger tells of one seal, one commit and one opening after it."""
    kinds = [entry.kind for entry in federation.entries()]
    assert kinds[-3:] == [EntryKind.ROUND_SEALED, EntryKind.ROUND_COMMITTED, EntryKind.ROUND_OPENED]
    assert kinds.count(EntryKind.ROUND_OPENED) == 2
    assert (federation.state().round_num, federation.state().phase) == (2, Phase.OPEN)
