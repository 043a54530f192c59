from __future__ import annotations

import json
from pathlib import Path

import pytest

from clma.cli import main
from clma.client import status, submit
from clma.errors import UnknownClientError
from clma.ledger.federation import Federation
from tests.clma.ledger.fleet import DUE, NOW, drop, make_fleet, model, written


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


def test_plant_that_sent_nothing_stands_in_the_open_round(fleet: Federation) -> None:
    found = status(fleet, "fleet", "p0")
    assert (found.round_num, found.phase, found.sent, found.verdict) == (1, "open", None, None)


def test_plant_sees_what_lies_there(fleet: Federation, tmp_path: Path) -> None:
    path = written(tmp_path / "t.safetensors", model(0.5))
    receipt = submit(fleet, "fleet", "p0", tensors=path, n_examples=5, drift_flag=False)
    assert status(fleet, "fleet", "p0").sent == receipt.digest


def test_junk_in_its_folder_is_no_update(fleet: Federation) -> None:
    fleet.store.put_once("inbox/round=000001/p0/update.json", b"{}")
    fleet.store.put_once("inbox/round=000001/p0/x.json", b"x" * 100_000)
    assert status(fleet, "fleet", "p0").sent is None


def test_plant_learns_why_its_last_update_was_refused(fleet: Federation) -> None:
    drop(fleet, "p0", tensors=b"no tensors")
    fleet.seal_round(now=DUE)
    fleet.hold_round("test")
    fleet.open_round(now=NOW)

    found = status(fleet, "fleet", "p0")

    assert (found.round_num, found.judged_round) == (2, 1)
    assert (found.verdict, found.reason) == ("rejected", "BAD_FORMAT")


def test_strangers_stand_nowhere(fleet: Federation) -> None:
    with pytest.raises(UnknownClientError):
        status(fleet, "fleet", "nobody")


def test_command_says_it_in_a_line_or_as_json(
    fleet: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["client", "status", "--store", fleet.store.url, "--federation", "fleet"]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main([*place, "--client", "p0", *more])
    line, facts = capsys.readouterr().out.splitlines()
    assert line == "p0: active in cohort c0; round 1 is open, no update"
    assert json.loads(facts)["round"] == 1
