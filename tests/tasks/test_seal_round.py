from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.logging import disable_run_logger

from clma.errors import StorageError
from clma.ledger.federation import Federation
from clma.records import Phase
from tasks.choose_round import ChosenRound
from tasks.night import Night
from tasks.seal_round import seal_round
from tests.clma.ledger.fleet import make_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


def seal(fleet: Federation) -> Night:
    with disable_run_logger():
        return seal_round.fn(fleet.store.url, "fleet", ChosenRound(1, "", ""))


def free(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=n_bytes))


def test_a_round_that_cannot_be_written_is_not_sealed(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 1000)

    with pytest.raises(StorageError, match=r"cannot be written: 1\.0 kB are free"):
        seal(fleet)
    assert fleet.state().phase is Phase.OPEN


def test_little_room_stops_no_night(fleet: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 10**6)

    assert seal(fleet).round_num == 1


def test_a_round_that_is_sealed_already_goes_on_whatever_the_room(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(fleet)
    free(monkeypatch, 1000)

    assert seal(fleet).round_num == 1
