from __future__ import annotations

import dataclasses
import datetime as dt
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.errors import (
    ConflictError,
    DamagedStoreError,
    InvalidConfigError,
    RoundStateError,
    UnknownClientError,
    UnknownFederationError,
)
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.keys import sealed_key, table_key
from clma.ledger.sealed import write_sealed
from clma.ledger.store import Store
from clma.ledger.tables import TABLE_NAMES, read_rows
from clma.records import ArtifactRef, ClientStatus, FederationState, Phase
from clma.round import RoundOutcome, run_round
from clma.rows import SealedRound
from tests.clma.ledger.fleet import DUE, NOW, drop, make_fleet, model, written


def run(federation: Federation, sealed: SealedRound) -> RoundOutcome:
    return run_round(
        federation.state(),
        sealed,
        federation.config,
        open_tensors=federation.open_tensors,
        save_model=federation.add_model,
    )


def test_a_new_federation_has_everybody_in_the_root_cohort(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path, opened=False)
    state = Federation.open(url, "fleet").state()

    assert state == federation.state()
    assert state.phase is Phase.CREATED
    assert state.members("c0") == ("p0", "p1", "p2")
    assert state.cohorts["c0"].model_digest == state.clients["p1"].serving_digest
    assert [s.name for s in federation.spec] == [
        "bn.num_batches_tracked",
        "head.bias",
        "head.weight",
    ]


def test_a_folder_holds_one_federation(url: str, tmp_path: Path) -> None:
    make_fleet(url, tmp_path)

    with pytest.raises(ConflictError, match="already holds a federation"):
        make_fleet(url, tmp_path)


def test_a_client_that_registers_while_the_inbox_is_judged_is_judged_too(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet(url, tmp_path)
    arrivals = iter(["new"])

    def judged(*args: Any, **kwargs: Any) -> ArtifactRef:
        ref = write_sealed(*args, **kwargs)
        for client_id in arrivals:
            Federation.open(url).register_client(client_id)
        return ref

    monkeypatch.setattr("clma.ledger.federation.write_sealed", judged)

    rows = federation.seal_round(now=DUE).rows

    assert [row.client_id for row in rows] == ["new", "p0", "p1", "p2"]


def test_a_creation_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    make_fleet(tmp_path / "a", tmp_path, opened=False)
    (tmp_path / "a/ledger/00000000.json").unlink()
    (tmp_path / "a/head.json").unlink()

    with pytest.raises(UnknownFederationError, match="not finished"):
        Federation.open(tmp_path / "a")
    assert make_fleet(tmp_path / "a", tmp_path).state().round_num == 1


def test_the_wrong_name_is_told_what_is_there(url: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFederationError, match="holds no federation"):
        Federation.open(url)
    make_fleet(url, tmp_path)

    with pytest.raises(UnknownFederationError, match="holds federation 'fleet', not 'north'"):
        Federation.open(url, "north")


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        (b"not a model", "safetensors|header"),
        ({"n": np.array(1)}, "no tensor of a float type"),
        ({"w": np.array([1.0, np.nan])}, "'w' has values that are NaN"),
        ({"w": np.array([1.0, 1e200])}, "'w' has values that are NaN"),
    ],
)
def test_a_base_model_that_cannot_be_trained_on_is_refused(
    tmp_path: Path, tensors: object, problem: str
) -> None:
    config = make_fleet(tmp_path / "a", tmp_path).config
    path = written(tmp_path / "bad.safetensors", tensors)  # type: ignore[arg-type]

    with pytest.raises(InvalidConfigError, match=problem):
        Federation.create(tmp_path / "b", config, path)
    assert Store.open(tmp_path / "b").list() == ()


def test_a_client_registered_in_an_open_round_takes_part_in_it(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    client = federation.register_client("new").clients["new"]

    assert (client.joined_round, client.cohort_id) == (1, "c0")
    federation.hold_round("test")
    assert federation.register_client("next").clients["next"].joined_round == 2


@pytest.mark.parametrize(
    "client_id",
    ["", "..", "../../etc/cron.d/x", "/abs", "a/b", "con", "NUL.txt", "a" * 65, "a\0", "a\n", "-rf",
     "%2e%2e", "=cmd()", ".a", "a.", "ä"],
)  # fmt: skip
def test_hostile_ids_are_refused(tmp_path: Path, client_id: str) -> None:
    federation = make_fleet(tmp_path / "a", tmp_path)

    with pytest.raises(UnknownClientError, match="is not allowed") as caught:
        federation.register_client(client_id)
    assert str(caught.value).isprintable()


def test_ids_are_unique_without_regard_to_case(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)

    with pytest.raises(ConflictError, match="'P1' is already registered, as 'p1'"):
        federation.register_client("P1")


def test_opening_twice_is_opening_once(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    state = federation.open_round(now=DUE)

    assert (state.round_num, state.phase) == (1, Phase.OPEN)
    assert state.deadline == NOW + dt.timedelta(hours=20)


def test_two_who_open_at_once_open_one_round(url: str, tmp_path: Path) -> None:
    make_fleet(url, tmp_path, opened=False)

    with ThreadPoolExecutor(6) as pool:
        states = list(pool.map(lambda _: Federation.open(url).open_round(now=NOW), range(12)))

    assert {s.round_num for s in states} == {1}
    assert len(Federation.open(url).entries()) == 2


def test_moves_hold_from_the_opened_round_on(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path, opened=False)
    state = federation.state()
    paused = dataclasses.replace(state.clients["p1"], status=ClientStatus.PAUSED)
    moves = dataclasses.replace(state, clients={**state.clients, "p1": paused})

    opened = federation.open_round(now=NOW, moves=moves)

    assert opened.clients["p1"].status is ClientStatus.PAUSED
    assert opened == Federation.open(url).state()


def test_a_round_is_not_sealed_before_it_is_due(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)

    with pytest.raises(RoundStateError, match="due at 2026-01-06 16:00 UTC"):
        federation.seal_round(now=NOW)
    assert federation.state().phase is Phase.OPEN
    assert federation.seal_round(now=NOW, force=True).round_num == 1


def test_sealing_is_once(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p0")
    sealed = federation.seal_round(now=DUE)
    drop(federation, "p1")

    assert federation.seal_round(now=DUE) == sealed
    assert Federation.open(url).load_sealed() == sealed
    assert [u.client_id for u in sealed.updates] == ["p0"]


def test_a_seal_whose_writer_was_killed_stays_what_it_was(tmp_path: Path) -> None:
    """Between the record and its entry nothing may change, whatever arrives."""
    federation = make_fleet(tmp_path / "a", tmp_path)
    drop(federation, "p0")
    sealed = federation.seal_round(now=DUE)
    (tmp_path / "a/ledger/00000002.json").unlink()
    (tmp_path / "a/head.json").unlink()
    again = Federation.open(tmp_path / "a")
    drop(again, "p1")

    assert again.state().phase is Phase.OPEN
    assert again.seal_round(now=DUE) == sealed


def test_two_who_seal_at_once_get_one_record(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path, 6)
    for i in range(6):
        drop(federation, f"p{i}")

    with ThreadPoolExecutor(4) as pool:
        records = list(pool.map(lambda _: Federation.open(url).seal_round(now=DUE), range(8)))

    assert all(r == records[0] for r in records)
    assert [e.kind for e in Federation.open(url).entries()].count(EntryKind.ROUND_SEALED) == 1


def test_a_changed_seal_is_found(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.seal_round(now=DUE)
    federation.store.replace(sealed_key(1, basis=2), b"{}")

    with pytest.raises(DamagedStoreError, match=r"sealed-00000002\.json"):
        federation.load_sealed()


def test_nothing_is_sealed_that_was_not_opened(url: str, tmp_path: Path) -> None:
    with pytest.raises(RoundStateError, match="is created, wanted open"):
        make_fleet(url, tmp_path, opened=False).seal_round(now=DUE)


def test_a_commit_records_state_and_tables(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    for i in range(3):
        drop(federation, f"p{i}", model(float(i)))
    outcome = run(federation, federation.seal_round(now=DUE))

    committed = federation.commit_round(outcome.decision, outcome.state)

    assert committed == outcome.state == Federation.open(url).state()
    for name in TABLE_NAMES:
        assert read_rows(federation.store, 1, name) == getattr(outcome.decision, name)


def test_committing_twice_is_committing_once(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p0")
    outcome = run(federation, federation.seal_round(now=DUE))
    federation.commit_round(outcome.decision, outcome.state)
    opened = federation.open_round(now=DUE)

    assert federation.commit_round(outcome.decision, outcome.state) == opened
    assert len(federation.entries()) == 5


def test_another_decision_of_the_same_round_is_refused(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p0")
    outcome = run(federation, federation.seal_round(now=DUE))
    federation.commit_round(outcome.decision, outcome.state)

    with pytest.raises(ConflictError):
        federation.commit_round(dataclasses.replace(outcome.decision, drift=()), outcome.state)
    other = dataclasses.replace(outcome.state, consensus_digest="ab" * 32)
    with pytest.raises(ConflictError, match="another decision"):
        federation.commit_round(outcome.decision, other)


def test_a_commit_keeps_clients_that_were_registered_meanwhile(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p0")
    outcome = run(federation, federation.seal_round(now=DUE))
    federation.register_client("new")

    committed = federation.commit_round(outcome.decision, outcome.state)

    assert set(committed.clients) == {*outcome.state.clients, "new"}


def test_an_unsealed_round_is_not_committed(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p0")
    outcome = run(federation, federation.seal_round(now=DUE))
    later = dataclasses.replace(outcome.decision, round_num=2)

    with pytest.raises(RoundStateError, match="round 2 of fleet is not sealed"):
        federation.commit_round(later, outcome.state)
    assert not federation.store.exists(table_key(2, "drift"))


def test_a_held_round_changes_nobody_and_the_next_one_opens(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    before = federation.state()
    federation.seal_round(now=DUE)

    held = federation.hold_round("quorum")

    assert federation.hold_round("again") == held
    assert (held.clients, held.cohorts) == (before.clients, before.cohorts)
    assert federation.entries()[-1].payload["reason"] == "quorum"
    assert federation.open_round(now=DUE).round_num == 2


def test_a_committed_round_is_not_held(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p0")
    outcome = run(federation, federation.seal_round(now=DUE))
    federation.commit_round(outcome.decision, outcome.state)

    with pytest.raises(RoundStateError, match="committed already"):
        federation.hold_round("late")


def test_a_sealed_round_is_finished_before_the_next_is_opened(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.seal_round(now=DUE)

    with pytest.raises(RoundStateError, match="commit or hold"):
        federation.open_round(now=DUE)


def test_a_model_is_found_by_its_digest_and_checked(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    digest = federation.add_model(b"model")

    assert federation.add_model(b"model") == digest
    assert federation.model_path(digest).read_bytes() == b"model"
    federation.store.close()
    federation.store.replace(federation.model_ref(digest).path, b"other")
    with pytest.raises(DamagedStoreError, match="recorded"):
        Federation.open(url).model_path(digest)


def test_every_reader_folds_the_same_state(url: str, tmp_path: Path) -> None:
    federation, reader = make_fleet(url, tmp_path), Federation.open(url)
    states: list[FederationState] = []
    for _ in range(3):
        states.append(federation.hold_round("test"))
        assert reader.state() == states[-1]
        federation.open_round(now=NOW)
    assert Federation.open(url).state() == reader.state()


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        make_fleet(tmp_path / "a", tmp_path).open_round(now=dt.datetime(2026, 1, 1))  # noqa: DTZ001


def test_who_comes_late_seals_no_later_round(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    first = federation.seal_round(now=DUE)
    federation.hold_round("quorum")
    federation.open_round(now=DUE)

    late = federation.seal_round(now=DUE, force=True, round_num=1)

    assert late == first
    assert federation.state().phase is Phase.OPEN


def test_who_comes_late_holds_no_later_round(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.seal_round(now=DUE)
    federation.hold_round("quorum", round_num=1)
    federation.open_round(now=DUE)

    state = federation.hold_round("quorum", round_num=1)

    assert (state.round_num, state.phase) == (2, Phase.OPEN)


def test_a_round_that_is_decided_while_another_reads_its_inbox_is_sealed_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = make_fleet(url, tmp_path), Federation.open(url)
    sealed = quick.seal_round
    monkeypatch.setattr(
        "clma.ledger.federation.write_sealed",
        lambda *_, **__: (monkeypatch.undo(), sealed(now=DUE), quick.hold_round("quorum"), None)[
            -1
        ],
    )

    assert slow.seal_round(now=DUE) == quick.sealed_round(1)
    assert slow.state().phase is Phase.HELD


@pytest.mark.parametrize("folder", ["", "ledger", "checkpoints", "leases/publish", "models"])
def test_drafts_of_killed_writers_are_swept_wherever_nights_write(
    tmp_path: Path, folder: str
) -> None:
    federation = make_fleet(tmp_path / "store", tmp_path)
    draft = tmp_path / "store" / folder / ".a.123.tmp"
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(b"half")
    os.utime(draft, (0, 0))

    assert federation.sweep_drafts() == 1
    assert not draft.exists()


def test_sweeping_does_not_look_at_rounds_of_long_ago(tmp_path: Path) -> None:
    federation = make_fleet(tmp_path / "store", tmp_path)
    for round_num in (1, 2, 3):
        draft = tmp_path / f"store/rounds/round={round_num:06d}/.a.123.tmp"
        draft.parent.mkdir(parents=True)
        draft.write_bytes(b"half")
        os.utime(draft, (0, 0))
    for _ in range(2):
        federation.hold_round("test")
        federation.open_round(now=NOW)

    assert federation.sweep_drafts() == 2
