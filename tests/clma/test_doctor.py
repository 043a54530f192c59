from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from clma.config import override_config, preset_config
from clma.doctor import Difference, DoctorReport, examine
from clma.errors import InvalidConfigError
from clma.ledger.federation import Federation
from clma.ledger.keys import entry_key, table_key
from clma.night import close_round
from tests.clma.ledger.fleet import NOW, drop, make_fleet, model, written

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    made = make_fleet(tmp_path / "store", tmp_path)
    drop(made, "p0")
    close_round(made, now=NOW, force=True)
    return made


def look(fleet: Federation, now: dt.datetime = NOW) -> DoctorReport:
    return examine(Federation.open(fleet.store.url), now=now)


def found(fleet: Federation, now: dt.datetime = NOW) -> list[str]:
    """Return what is to be mended, without what a test does to clock and disk."""
    report = look(fleet, now)
    of_place = {f.detail.partition("; ")[0] for f in report.findings}
    return [d.line for d in report.differences if d.what not in of_place]


def test_a_store_that_is_well_has_nothing_to_mend(fleet: Federation) -> None:
    assert found(fleet) == []
    assert {f.check for f in look(fleet).findings} >= {"write", "room", "clock"}


def test_a_lost_artifact_comes_back_from_a_backup(fleet: Federation) -> None:
    fleet.store.delete(table_key(1, "drift"))

    (line,) = found(fleet)

    assert line.startswith(f"disk: {table_key(1, 'drift')} is missing")
    assert line.endswith(f"restore {table_key(1, 'drift')} from a backup of the folder")


def test_a_broken_chain_is_all_that_is_told(fleet: Federation) -> None:
    looker = Federation.open(fleet.store.url)
    fleet.store.replace(entry_key(1), fleet.store.get(entry_key(2)))

    report = examine(looker, now=NOW)

    assert [d.place for d in report.differences] == ["ledger"]
    assert "restore ledger/" in report.differences[0].mend


def test_edited_settings_are_told_with_the_way_to_apply_them(fleet: Federation) -> None:
    text = fleet.operators_copy() or ""
    fleet.store.replace("federation.toml", text.replace("quorum = 1", "quorum = 2", 1).encode())

    (line,) = found(fleet)

    assert line.startswith("settings: federation.toml was edited and is not in force")
    assert "clma configure --apply" in line


def test_a_round_that_nobody_closes_is_told(fleet: Federation) -> None:
    assert found(fleet, NOW + 30 * HOUR) == []

    (line,) = found(fleet, NOW + 50 * HOUR)

    assert "round 2 was due at 2026-01-06 16:00 UTC; python -m flows.nightly --store" in line


def test_a_night_that_was_stopped_after_the_seal_is_told(fleet: Federation) -> None:
    fleet.seal_round(now=NOW, force=True)

    (line,) = found(fleet, NOW + 2 * HOUR)

    assert "round 2 is sealed since 2026-01-05 20:00 UTC and not decided" in line


def test_held_rounds_are_told_with_their_reason(fleet: Federation) -> None:
    for _ in range(2):
        fleet.hold_round("0 updates accepted", now=NOW)
        fleet.open_round(now=NOW)

    (line,) = found(fleet)

    assert "the last 2 rounds were held: 0 updates accepted" in line


def test_plants_that_cannot_send_are_told(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, 8, identity={"updates": "signed"})

    (line,) = found(fleet)

    assert "8 cannot send for want of a valid key: p0, p1, p2, p3, p4 and 3 more" in line


def test_what_a_server_shows_is_compared_by_who_knows_it(fleet: Federation) -> None:
    missing = Difference("mlflow", "round 1 is not published", "python -m flows.publish")

    report = examine(fleet, now=NOW, projections=[lambda _: [missing]])

    assert missing in report.differences
    assert not report.is_well


def test_a_model_without_a_clear_output_layer_is_told(tmp_path: Path) -> None:
    """Nothing is wrong with it, and to say that there is none is an answer."""
    two_heads = model(tail__weight=np.ones((5, 3), np.float32))
    base = written(tmp_path / "base.safetensors", two_heads)
    config = preset_config("fleet", cohorting={"output_weight": 0.5})
    fleet = Federation.create(tmp_path / "store", config, base, now=NOW)

    told = examine(fleet, now=NOW)
    fleet.configure(override_config(config, ["cohorting.output_layer=none"]))

    assert [note.partition(" can")[0] for note in told.notes] == ["no output layer"]
    assert not [d for d in told.differences if d.place == "settings"]
    assert examine(fleet, now=NOW).notes == ()


def test_a_federation_with_an_unknown_output_layer_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="no layer 'hat'"):
        make_fleet(tmp_path / "store", tmp_path, cohorting={"output_layer": "hat"})
    assert not (tmp_path / "store").exists()
