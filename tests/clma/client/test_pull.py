from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from clma.client.pull import pull, read_note
from clma.errors import (
    DamagedStoreError,
    StorageError,
    UnknownClientError,
    UnknownFederationError,
)
from clma.ledger.federation import Federation
from clma.ledger.store import Store, file_digest
from clma.records import ClientStatus, Cohort
from tests.clma.ledger.fleet import NOW, make_fleet
from tests.clma.ledger.refusing import refuse, refuse_with


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


def after_a_move(fleet: Federation, **changed: object) -> str:
    """Move p0 to a new cohort in round 1, open round 2; return the new cohort's model."""
    state = fleet.hold_round("test")
    digest = fleet.add_model(b"model of c1")
    moved = dataclasses.replace(
        state.clients["p0"],
        **{
            "cohort_id": "c1",
            "serving_digest": digest,
            "moved_round": 1,
            "unconfirmed": True,
            "origin_cohort": "c0",
            **changed,
        },
    )
    moves = dataclasses.replace(
        state,
        clients={**state.clients, "p0": moved},
        cohorts={**state.cohorts, "c1": Cohort("c1", "c0", 0, digest)},
    )
    fleet.open_round(now=NOW, moves=moves)
    return digest


def test_a_client_gets_the_model_that_the_state_names(fleet: Federation, tmp_path: Path) -> None:
    pulled = pull(fleet.store.url, "fleet", "p0", tmp_path / "plant/m.safetensors")

    assert pulled.path.read_bytes() == (tmp_path / "base.safetensors").read_bytes()
    assert pulled.base_digest == fleet.state().clients["p0"].serving_digest
    assert (pulled.round_num, pulled.cohort_id, pulled.share_loss) == (1, "c0", False)
    assert (pulled.confirm_cohort, pulled.confirm_path) == (None, None)


def test_the_note_says_what_was_pulled(fleet: Federation, tmp_path: Path) -> None:
    pulled = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")

    assert read_note(pulled.path) == pulled
    assert read_note(tmp_path / "other") is None


def test_a_damaged_note_is_no_guess(fleet: Federation, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors.json").write_text("{}")

    with pytest.raises(DamagedStoreError, match="pull again"):
        read_note(tmp_path / "m.safetensors")


def test_pulling_again_replaces_and_leaves_no_draft(fleet: Federation, tmp_path: Path) -> None:
    for _ in range(2):
        pull(fleet, "fleet", "p0", tmp_path / "plant/m.safetensors")

    names = sorted(p.name for p in (tmp_path / "plant").iterdir())
    assert names == ["m.safetensors", "m.safetensors.json"]


def test_a_client_that_was_moved_gets_the_model_to_confirm(
    fleet: Federation, tmp_path: Path
) -> None:
    digest = after_a_move(fleet)
    pulled = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")

    assert (pulled.base_digest, pulled.confirm_cohort) == (digest, "c0")
    assert pulled.confirm_path == tmp_path / "m.origin.safetensors"
    assert pulled.confirm_path.read_bytes() == (tmp_path / "base.safetensors").read_bytes()


def test_confirming_is_asked_until_it_is_answered(fleet: Federation, tmp_path: Path) -> None:
    """A night that was held, or a client that was away, does not close the way home."""
    after_a_move(fleet)
    fleet.hold_round("test")
    fleet.open_round(now=NOW)

    assert pull(fleet, "fleet", "p0", tmp_path / "m.safetensors").confirm_cohort == "c0"


def test_a_client_in_quarantine_may_go_home(fleet: Federation, tmp_path: Path) -> None:
    after_a_move(fleet, status=ClientStatus.QUARANTINED, cohort_id="c0", unconfirmed=False)
    assert pull(fleet, "fleet", "p0", tmp_path / "m.safetensors").confirm_cohort == "c0"


def test_confirming_is_not_asked_where_it_is_switched_off(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, drift={"confirm": False})
    after_a_move(fleet)

    assert pull(fleet, "fleet", "p0", tmp_path / "m.safetensors").confirm_cohort is None


def test_a_changed_model_is_never_written(fleet: Federation, tmp_path: Path) -> None:
    digest = fleet.state().clients["p0"].serving_digest
    fleet.store.replace(f"models/{digest}.safetensors", b"evil")

    with pytest.raises(DamagedStoreError, match="recorded"):
        pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()


def test_strangers_get_nothing(fleet: Federation, tmp_path: Path) -> None:
    after_a_move(fleet, status=ClientStatus.FORGOTTEN)
    for client_id in ("nobody", "../p0", "p0"):
        with pytest.raises(UnknownClientError, match="is not registered"):
            pull(fleet, "fleet", client_id, tmp_path / "m.safetensors")
    with pytest.raises(UnknownFederationError, match="'fleet', not 'north'"):
        pull(fleet.store.url, "north", "p0", tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()


def choosing(tmp_path: Path) -> Federation:
    """Return a federation whose clients choose among two models."""
    share = ["weights", "examples", "flag", "choice", "loss_vector"]
    federation = make_fleet(
        tmp_path / "store", tmp_path, preset="ifca", privacy={"share": share}, opened=False
    )
    digest = federation.add_model(b"model of c1")
    state = federation.state()
    second = Cohort("c1", None, 0, digest)
    moves = dataclasses.replace(state, cohorts={**state.cohorts, "c1": second})
    federation.open_round(now=NOW, moves=moves)
    return federation


def test_models_of_choice_come_along_the_own_one_first(tmp_path: Path) -> None:
    pulled = pull(choosing(tmp_path), "fleet", "p0", tmp_path / "m.safetensors")

    assert [m.cohort_id for m in pulled.choice] == ["c0", "c1"]
    assert pulled.choice[0].path == pulled.path
    assert pulled.choice[1].path.read_bytes() == b"model of c1"
    assert read_note(pulled.path) == pulled


def test_most_clients_have_no_choice(fleet: Federation, tmp_path: Path) -> None:
    assert pull(fleet, "fleet", "p0", tmp_path / "m.safetensors").choice == ()


SHARE = ["weights", "flag", "examples", "choice"]


def test_flagged_client_fetches_the_other_models_and_its_own_no_second_time(tmp_path: Path) -> None:
    settings = {"preset": "clma-probe", "privacy": {"share": SHARE}}
    fleet = make_fleet(tmp_path / "store", tmp_path, **settings)
    after_a_move(fleet, unconfirmed=False, moved_round=None)
    fleet.hold_round("test")
    fleet.open_round(now=NOW)  # a cohort of last night would not be offered
    first = pull(fleet, "fleet", "p1", tmp_path / "m.safetensors")
    stamp = first.path.stat().st_mtime_ns

    again = pull(fleet, "fleet", "p1", first.path, drifted=True)

    assert (first.choice, first.choice_on_drift) == ((), True)
    assert [m.path.read_bytes() for m in again.choice[1:]] == [b"model of c1"]
    assert again.path.stat().st_mtime_ns == stamp


def test_model_in_question_is_fetched_once(tmp_path: Path) -> None:
    settings = {"preset": "clma-choice", "privacy": {"share": SHARE}}
    fleet = make_fleet(tmp_path / "store", tmp_path, **settings)
    after_a_move(fleet)

    pulled = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")

    assert [m.cohort_id for m in pulled.choice] == ["c1", "c0"]
    assert pulled.confirm_path == pulled.choice[1].path
    assert not (tmp_path / "m.origin.safetensors").exists()


@pytest.fixture
def away(tmp_path: Path) -> Callable[[Federation], str]:
    """Take a federation's folder away; returns where it was."""

    def take(fleet: Federation) -> str:
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        return fleet.store.url

    return take


def test_without_the_store_the_last_good_model_serves(
    fleet: Federation, tmp_path: Path, away: Callable[[Federation], str]
) -> None:
    after_a_move(fleet)
    before = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")

    pulled = pull(away(fleet), "fleet", "p0", before.path)

    assert (before.offline, before.confirm_cohort) == (None, "c0")
    assert "holds no federation" in str(pulled.offline)
    assert (pulled.base_digest, pulled.round_num) == (before.base_digest, before.round_num)
    assert (pulled.confirm_cohort, pulled.confirm_path, pulled.choice) == (None, None, ())
    assert read_note(before.path) == before


@pytest.mark.parametrize("spoil", ["model", "note", "whose"])
def test_without_the_store_nothing_is_served_that_is_not_sure(
    fleet: Federation, tmp_path: Path, away: Callable[[Federation], str], spoil: str
) -> None:
    path = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors").path
    if spoil == "model":
        path.write_bytes(path.read_bytes() + b"x")
    elif spoil == "note":
        (tmp_path / "m.safetensors.json").write_text("{}")

    with pytest.raises(UnknownFederationError, match="holds no federation"):
        pull(away(fleet), "fleet", "p1" if spoil == "whose" else "p0", path)


def test_a_line_that_breaks_in_the_middle_counts_as_away(
    fleet: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")
    after_a_move(fleet)
    monkeypatch.setattr(Store, "stream", refuse_with(StorageError("no network")))

    pulled = pull(fleet, "fleet", "p0", first.path, attempts=1)

    assert (pulled.offline, pulled.base_digest) == ("no network", first.base_digest)


def test_a_plants_own_full_disk_is_not_taken_for_a_lost_store(
    fleet: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")
    after_a_move(fleet)
    monkeypatch.setattr("clma.client.download.sync_file", refuse(errno.ENOSPC))

    with pytest.raises(StorageError, match=r"safetensors cannot be written.*no space"):
        pull(fleet, "fleet", "p0", first.path)

    assert file_digest(first.path) == first.base_digest


def test_a_store_that_is_there_but_wrong_is_no_lost_store(
    fleet: Federation, tmp_path: Path
) -> None:
    pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")

    with pytest.raises(UnknownFederationError, match="'fleet', not 'north'"):
        pull(fleet.store.url, "north", "p0", tmp_path / "m.safetensors")
