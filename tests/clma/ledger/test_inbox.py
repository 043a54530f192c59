"""What lies in the inbox when a round is sealed, one reason code after the other."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.errors import StorageError
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ClientStatus
from clma.rows import Verdict
from clma.updates.reasons import Reason
from tests.clma.ledger.fleet import DUE, NOW, drop, make_fleet, model, row_of
from tests.clma.ledger.refusing import refuse, refuse_with

ONE_NAN = np.array([0, np.nan, 0, 0], np.float32)
INFINITE = np.full((4, 3), np.inf, np.float32)
WIDER = np.ones((5, 3), np.float32)

TENSORS: list[tuple[Reason, Any, str]] = [
    (Reason.NON_FINITE, model(head__bias=ONE_NAN), "'head.bias' has 1 value"),
    (Reason.NON_FINITE, model(head__weight=INFINITE), "'head.weight' has 12"),
    (Reason.SHAPE_MISMATCH, model(head__weight=WIDER), "expected [4, 3] got [5, 3]"),
    (Reason.SHAPE_MISMATCH, model(head__bias=np.ones(1, np.float32)), "expected [4] got [1]"),
    (Reason.DTYPE_MISMATCH, model(head__bias=np.ones(4)), "is F64, wanted F32"),
    (Reason.DTYPE_MISMATCH, model(bn__num_batches_tracked=np.array(7.0)), "is F64, wanted I64"),
    (Reason.NAMES_MISMATCH, model(head__bias=None), "missing tensors: head.bias; surplus: none"),
    (Reason.NAMES_MISMATCH, model(head2__weight=np.ones(1)), "surplus: head2.weight"),
    (Reason.NAMES_MISMATCH, {f"module.{n}": v for n, v in model().items()}, "'module.' prefix"),
    (Reason.DTYPE_UNSUPPORTED, serialize_tensors(model()).replace(b'"F32"', b'"C64"'), "'C64'"),
    (Reason.BAD_FORMAT, b"", "at least 8"),
    (Reason.BAD_FORMAT, serialize_tensors(model())[:-1], "file at"),
    (Reason.BAD_FORMAT, pickle.dumps({"w": 1}), "header claims"),
]


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


@pytest.mark.parametrize(("reason", "tensors", "detail"), TENSORS)
def test_bad_tensors_cost_one_vote_and_say_why(
    fleet: Federation, reason: Reason, tensors: Mapping[str, Any] | bytes, detail: str
) -> None:
    drop(fleet, "p0")
    drop(fleet, "p1", tensors)

    sealed = fleet.seal_round(now=DUE)

    row = row_of(sealed, "p1")
    assert (row.verdict, row.reason) == (Verdict.REJECTED, reason.value)
    assert detail in (row.detail or "")
    assert [u.client_id for u in sealed.updates] == ["p0"]


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        (Reason.STALE_ROUND, {"round": 0}),
        (Reason.FUTURE_ROUND, {"round": 2}),
        (Reason.STALE_BASE, {"base_digest": "ab" * 32}),
        (Reason.BAD_EXAMPLES, {"n_examples": -1}),
        (Reason.BAD_METADATA, {"federation": "other"}),
        (Reason.BAD_CLIENT_ID, {"client_id": "p0"}),
        (Reason.BAD_CLIENT_ID, {"client_id": "../p1"}),
        (Reason.DIGEST_MISMATCH, {"tensors_sha256": "ab" * 32}),
    ],
)
def test_a_message_that_does_not_fit_is_refused(
    fleet: Federation, reason: Reason, fields: dict[str, Any]
) -> None:
    drop(fleet, "p1")
    path = Path(fleet.store.url) / "inbox/round=000001/p1/update.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    assert row_of(fleet.seal_round(now=DUE), "p1").reason == reason.value


def test_a_disguised_archive_is_never_executed(fleet: Federation, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "marker",))

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("data.pkl", pickle.dumps(Bomb()))
    drop(fleet, "p0", pickle.dumps(Bomb()))
    drop(fleet, "p1", archive.getvalue())

    sealed = fleet.seal_round(now=DUE)

    assert {row_of(sealed, c).reason for c in ("p0", "p1")} == {"BAD_FORMAT"}
    assert not (tmp_path / "marker").exists()


def test_tensors_without_a_message_are_incomplete(fleet: Federation) -> None:
    fleet.store.put_once(update_key(1, "p0", "update.safetensors"), b"half")

    row = row_of(fleet.seal_round(now=DUE), "p0")

    assert (row.reason, row.detail) == (
        "INCOMPLETE",
        "update.json was not there when the round was sealed",
    )


def test_a_message_without_tensors_is_incomplete(fleet: Federation) -> None:
    drop(fleet, "p0")
    (Path(fleet.store.url) / "inbox/round=000001/p0/update.safetensors").unlink()

    row = row_of(fleet.seal_round(now=DUE), "p0")

    assert row.reason == "INCOMPLETE"
    assert "update.safetensors" in (row.detail or "")


def test_an_endless_message_is_not_read(fleet: Federation) -> None:
    drop(fleet, "p0", message=b" " * 100_000)

    assert row_of(fleet.seal_round(now=DUE), "p0").reason == "BAD_METADATA"


def test_who_sends_nothing_is_missing(fleet: Federation) -> None:
    rows = fleet.seal_round(now=DUE).rows

    assert {(r.verdict, r.reason) for r in rows} == {(Verdict.MISSING, "MISSED_DEADLINE")}
    assert [r.client_id for r in rows] == ["p0", "p1", "p2"]


def test_zero_examples_are_accepted_and_noted(fleet: Federation) -> None:
    drop(fleet, "p0", n_examples=0)
    sealed = fleet.seal_round(now=DUE)

    row = row_of(sealed, "p0")
    assert (row.verdict, row.reason) == (Verdict.ACCEPTED, "ZERO_EXAMPLES")
    assert sealed.updates[0].n_examples == 0


def test_a_loss_that_is_not_shared_is_dropped_and_noted(fleet: Federation) -> None:
    drop(fleet, "p0", loss=0.5)
    sealed = fleet.seal_round(now=DUE)

    row = row_of(sealed, "p0")
    assert (row.verdict, row.reason, row.loss) == (Verdict.ACCEPTED, "NOT_SHARED", None)
    assert sealed.updates[0].loss is None


def test_a_loss_that_is_shared_is_kept(tmp_path: Path) -> None:
    share = ["weights", "flag", "examples", "loss"]
    fleet = make_fleet(tmp_path / "store", tmp_path, privacy={"share": share})
    drop(fleet, "p0", loss=0.5)
    sealed = fleet.seal_round(now=DUE)

    assert (sealed.updates[0].loss, row_of(sealed, "p0").loss) == (0.5, 0.5)


def test_a_flag_that_is_not_shared_decides_nothing(tmp_path: Path) -> None:
    fleet = make_fleet(
        tmp_path / "store", tmp_path, preset="fedavg", privacy={"share": ["weights", "examples"]}
    )
    drop(fleet, "p0", drift_flag=True, confirm=True)
    sealed = fleet.seal_round(now=DUE)

    update = sealed.updates[0]
    assert (update.drift_flag, update.confirm, row_of(sealed, "p0").drift_flag) == (
        False,
        None,
        None,
    )


def test_the_order_of_tensors_means_nothing(fleet: Federation) -> None:
    tensors = model(0.5)
    drop(fleet, "p0", dict(reversed(tensors.items())))
    drop(fleet, "p1", tensors)

    one, two = fleet.seal_round(now=DUE).updates

    assert one.tensors.sha256 == two.tensors.sha256


def test_strangers_are_listed_and_never_used(fleet: Federation) -> None:
    for folder in ("stranger", "P0", "=cmd()", "a\nb"):
        path = Path(fleet.store.url) / "inbox/round=000001" / folder / "update.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"{}")

    sealed = fleet.seal_round(now=DUE)

    found = {r.client_id: r.reason for r in sealed.rows if r.verdict is Verdict.REJECTED}
    assert found == {
        "stranger": "UNKNOWN_CLIENT",
        "P0": "UNKNOWN_CLIENT",
        "=cmd()": "BAD_CLIENT_ID",
        "a\\nb": "BAD_CLIENT_ID",
    }
    assert sealed.updates == ()


def test_links_in_the_inbox_are_not_followed(fleet: Federation, tmp_path: Path) -> None:
    drop(fleet, "p0")
    inbox = Path(fleet.store.url) / "inbox/round=000001"
    (inbox / "p0").rename(tmp_path / "outside")
    (inbox / "p0").symlink_to(tmp_path / "outside")
    drop(fleet, "p1")
    (inbox / "p1/update.safetensors").rename(tmp_path / "tensors")
    (inbox / "p1/update.safetensors").symlink_to(tmp_path / "tensors")

    sealed = fleet.seal_round(now=DUE)

    assert {row_of(sealed, c).reason for c in ("p0", "p1")} == {"BAD_FORMAT"}


def test_a_paused_client_is_not_awaited_and_not_used(fleet: Federation) -> None:
    state = fleet.hold_round("test")
    paused = {
        c: dataclasses.replace(state.clients[c], status=ClientStatus.PAUSED) for c in ("p0", "p1")
    }
    fleet.open_round(now=NOW, moves=dataclasses.replace(state, clients={**state.clients, **paused}))
    drop(fleet, "p1")

    sealed = fleet.seal_round(now=DUE)

    assert [(r.client_id, r.reason) for r in sealed.rows] == [
        ("p1", "CLIENT_PAUSED"),
        ("p2", "MISSED_DEADLINE"),
    ]


def test_what_came_after_the_seal_is_listed_late_and_not_mixed_in(fleet: Federation) -> None:
    fleet.seal_round(now=DUE)
    drop(fleet, "p0")
    fleet.hold_round("quorum")
    fleet.open_round(now=DUE)
    fleet.seal_round(now=DUE, force=True)

    late = [r for r in fleet.load_sealed().rows if r.verdict is Verdict.LATE]

    assert [(r.client_id, r.reason) for r in late] == [("p0", "STALE_ROUND")]
    assert fleet.load_sealed().updates == ()


def test_the_order_of_arrival_changes_nothing(tmp_path: Path) -> None:
    fleets = [make_fleet(f"memory://{tmp_path}/{i}", tmp_path) for i in range(2)]
    for fleet, order in zip(fleets, (("p0", "p2"), ("p2", "p0")), strict=True):
        for client_id in order:
            drop(fleet, client_id)

    one, two = (fleet.seal_round(now=DUE).updates for fleet in fleets)

    assert one == two


def test_a_disk_that_fails_costs_nobody_the_vote(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal fails and can be tried again; a rejection would stand for good."""
    drop(fleet, "p0")
    with monkeypatch.context() as patch:
        patch.setattr("clma.ledger.inbox.check_tensors", refuse(errno.EIO))
        with pytest.raises(StorageError, match=r"p0/update.safetensors cannot be read"):
            fleet.seal_round(now=DUE)

    assert row_of(fleet.seal_round(now=DUE), "p0").verdict is Verdict.ACCEPTED


def test_a_file_that_its_plant_made_unreadable_costs_its_vote_only(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(fleet, "p0")
    monkeypatch.setattr("clma.ledger.inbox.check_tensors", refuse(errno.EACCES))

    sealed = fleet.seal_round(now=DUE)

    assert row_of(sealed, "p0").reason == "BAD_FORMAT"


def test_what_an_entry_will_name_is_on_the_disk_first(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that dropped a file may not have waited for the disk."""
    drop(fleet, "p0")
    tensors = Path(fleet.store.url) / "inbox/round=000001/p0/update.safetensors"
    tensors.write_bytes(tensors.read_bytes())
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))

    fleet.seal_round(now=DUE)

    assert {tensors.stat().st_ino, tensors.parent.stat().st_ino} <= set(synced)


def test_a_disk_that_cannot_be_waited_for_costs_nobody_the_vote(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(fleet, "p0")
    fleet.state()
    monkeypatch.setattr(fleet.store, "make_durable", refuse_with(StorageError("x", errno.EACCES)))

    with pytest.raises(StorageError):
        fleet.seal_round(now=DUE)
