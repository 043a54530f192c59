from __future__ import annotations

from pathlib import Path

import pytest

from clma.config import override_config, preset_config
from clma.errors import DamagedStoreError, InvalidConfigError, RoundStateError
from clma.ledger.federation import Federation
from tests.clma.ledger.fleet import DUE, make_fleet


def test_a_changed_setting_is_in_force_for_everybody(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    other = Federation.open(url)

    other.configure(override_config(other.config, ["round.quorum=2"]))

    assert federation.config.round.quorum == 2
    assert federation.operators_copy() == Federation.open(url).operators_copy()


def test_each_round_keeps_the_settings_of_its_night(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.seal_round(now=DUE)
    federation.hold_round("quorum")
    federation.configure(override_config(federation.config, ["round.quorum=2"]))
    federation.open_round(now=DUE)
    federation.seal_round(now=DUE, force=True)

    assert [federation.config_at_seal(r).round.quorum for r in (1, 2)] == [1, 2]


def test_the_same_settings_again_add_no_entry(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    n_entries = len(federation.entries())

    federation.configure(federation.config)

    assert len(federation.entries()) == n_entries


def test_settings_do_not_change_between_seal_and_decision(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.seal_round(now=DUE)

    with pytest.raises(RoundStateError, match="round 1 is sealed: run the night"):
        federation.configure(override_config(federation.config, ["round.quorum=2"]))


def test_settings_of_another_federation_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="'north', the store holds 'fleet'"):
        make_fleet(url, tmp_path).configure(preset_config("north"))


def test_the_recorded_settings_cannot_be_edited(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    ref = federation.state().config
    assert ref is not None
    federation.store.replace(ref.path, b"federation = 'fleet'\n")

    with pytest.raises(DamagedStoreError, match=ref.path):
        Federation.open(url)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(b"preset = 3", "cannot be read"), (b"federation = 'fleet'\nseed = 7\n", "is not in force")],
)
def test_the_operators_copy_is_told_from_what_is_in_force(
    url: str, tmp_path: Path, text: bytes, problem: str
) -> None:
    federation = make_fleet(url, tmp_path)
    assert federation.stray_settings() is None

    federation.store.replace("federation.toml", text)

    assert problem in (federation.stray_settings() or "")
    assert federation.config.seed == 0
