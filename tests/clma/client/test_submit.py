from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.client.pull import pull
from clma.client.submit import SubmitReceipt, submit
from clma.errors import InvalidUpdateError, RoundStateError, StorageError, UnknownClientError
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.rows import Verdict
from clma.updates.message import parse_message
from tests.clma.ledger.fleet import DUE, NOW, make_fleet, model, row_of, written
from tests.clma.ledger.refusing import refuse


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


def send(fleet: Federation, tensors: Path, client_id: str = "p0", **fields: Any) -> SubmitReceipt:
    values: dict[str, Any] = {"n_examples": 100, "drift_flag": False, **fields}
    return submit(fleet, "fleet", client_id, tensors=tensors, **values)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return written(tmp_path / "trained.safetensors", model(0.5))


def test_what_is_sent_is_accepted_at_the_seal(fleet: Federation, trained: Path) -> None:
    receipt = submit(
        fleet.store.url,
        "fleet",
        "p0",
        tensors=trained,
        n_examples=9,
        drift_flag=True,
        confirm=False,
    )
    (update,) = fleet.seal_round(now=DUE).updates

    assert update.tensors.sha256 == receipt.digest
    assert (update.n_examples, update.drift_flag, update.confirm) == (9, True, False)


def test_numbers_of_numpy_are_numbers(fleet: Federation, trained: Path) -> None:
    send(fleet, trained, n_examples=np.int64(5), drift_flag=np.bool_(True))

    assert fleet.seal_round(now=DUE).updates[0].n_examples == 5


def test_the_same_again_changes_nothing(fleet: Federation, trained: Path) -> None:
    first = send(fleet, trained)
    keys = fleet.store.list("inbox")

    again = send(fleet, trained)

    assert (first.duplicate, again.duplicate, again.digest) == (False, True, first.digest)
    assert fleet.store.list("inbox") == keys


def test_the_same_again_is_no_error_after_the_round(fleet: Federation, trained: Path) -> None:
    """A plant whose receipt was lost may ask until it has one."""
    send(fleet, trained)
    fleet.seal_round(now=DUE)

    assert send(fleet, trained).duplicate


def test_a_second_update_is_refused_and_the_first_stays(
    fleet: Federation, trained: Path, tmp_path: Path
) -> None:
    first = send(fleet, trained)
    other = written(tmp_path / "other.safetensors", model(0.7))

    for tensors, fields in ((other, {}), (trained, {"n_examples": 5})):
        with pytest.raises(InvalidUpdateError, match="was sent before") as caught:
            send(fleet, tensors, **fields)
        assert caught.value.reason == "CONFLICTING_UPDATE"
    sealed = fleet.seal_round(now=DUE)

    assert [u.tensors.sha256 for u in sealed.updates] == [first.digest]
    rows = [r for r in sealed.rows if r.client_id == "p0"]
    assert [r.verdict for r in rows] == [Verdict.ACCEPTED, Verdict.REJECTED, Verdict.REJECTED]
    assert {r.reason for r in rows} == {None, "CONFLICTING_UPDATE"}


def test_of_writers_at_the_same_instant_exactly_one_is_accepted(tmp_path: Path) -> None:
    for attempt in range(8):
        fleet = make_fleet(f"memory://{tmp_path}/{attempt}", tmp_path, 1)
        paths = [written(tmp_path / f"{i}.safetensors", model(float(i))) for i in range(4)]

        def attempt_to_send(path: Path, fleet: Federation = fleet) -> str | None:
            try:
                return send(fleet, path).digest
            except InvalidUpdateError as error:
                return None if error.reason == "CONFLICTING_UPDATE" else str(error)

        with ThreadPoolExecutor(4) as pool:
            sent = [d for d in pool.map(attempt_to_send, paths) if d]

        assert len(sent) == 1
        assert [u.tensors.sha256 for u in fleet.seal_round(now=DUE).updates] == sent


@pytest.mark.parametrize("left", ["half", "whole"])
def test_a_crash_before_the_message_is_repaired_by_sending_again(
    fleet: Federation, trained: Path, left: str
) -> None:
    data = trained.read_bytes()
    key = update_key(1, "p0", "update.safetensors")
    fleet.store.put_once(key, data[:20] if left == "half" else data)

    receipt = send(fleet, trained)

    assert [u.tensors.sha256 for u in fleet.seal_round(now=DUE).updates] == [receipt.digest]


@pytest.mark.parametrize(
    ("reason", "tensors"),
    [
        ("NON_FINITE", model(head__bias=np.array([np.nan, 0, 0, 0], np.float32))),
        ("SHAPE_MISMATCH", model(head__bias=np.ones(1, np.float32))),
        ("NAMES_MISMATCH", model(head__bias=None)),
        ("BAD_FORMAT", b"PK\x03\x04 a zip, perhaps"),
    ],
)
def test_a_plant_learns_at_once_what_the_server_would_say(
    fleet: Federation, tmp_path: Path, reason: str, tensors: Any
) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        send(fleet, written(tmp_path / "t", tensors))
    assert caught.value.reason == reason
    assert fleet.store.list("inbox") == ()


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("FUTURE_ROUND", {"round_num": 2}),
        ("STALE_ROUND", {"round_num": 0}),
        ("STALE_BASE", {"base_digest": "ab" * 32}),
        ("BAD_EXAMPLES", {"n_examples": -1}),
    ],
)
def test_a_wrong_number_is_refused_before_anything_is_sent(
    fleet: Federation, trained: Path, reason: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        send(fleet, trained, **fields)
    assert caught.value.reason == reason
    assert fleet.store.list("inbox") == ()


def test_a_missing_file_is_named(fleet: Federation, tmp_path: Path) -> None:
    with pytest.raises(InvalidUpdateError, match=r"gone\.safetensors"):
        send(fleet, tmp_path / "gone.safetensors")


def test_a_stranger_sends_nothing(fleet: Federation, trained: Path) -> None:
    for client_id in ("nobody", "../../x"):
        with pytest.raises(UnknownClientError, match="is not registered"):
            send(fleet, trained, client_id)
    assert fleet.store.list("inbox") == ()


def test_a_model_pulled_for_an_earlier_round_is_stale(fleet: Federation, tmp_path: Path) -> None:
    """The note beside the file knows the round, so an old training is never sent as a new one."""
    path = tmp_path / "m.safetensors"
    pull(fleet, "fleet", "p0", path)
    written(path, model(0.5))
    fleet.hold_round("test")
    fleet.open_round(now=NOW)

    with pytest.raises(InvalidUpdateError) as caught:
        send(fleet, path)
    assert caught.value.reason == "STALE_ROUND"
    assert not send(fleet, path, round_num=2).duplicate


def test_what_was_pulled_can_be_given(fleet: Federation, trained: Path, tmp_path: Path) -> None:
    pulled = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")
    fleet.hold_round("test")
    fleet.open_round(now=NOW)

    with pytest.raises(InvalidUpdateError, match="update of round 1, open is 2"):
        send(fleet, trained, pulled=pulled)


def test_a_loss_leaves_the_plant_only_where_it_is_shared(
    fleet: Federation, trained: Path, tmp_path: Path
) -> None:
    share = ["weights", "flag", "examples", "loss"]
    open_fleet = make_fleet(tmp_path / "other", tmp_path, privacy={"share": share})
    key = update_key(1, "p0", "update.json")

    receipt = send(fleet, trained, loss=0.5)
    send(open_fleet, trained, loss=0.5)

    assert parse_message(fleet.store.get(key)).loss is None
    assert "not sent" in receipt.notes[0]
    assert parse_message(open_fleet.store.get(key)).loss == 0.5


def test_zero_examples_are_sent_with_a_note(fleet: Federation, trained: Path) -> None:
    assert "weight 0" in send(fleet, trained, n_examples=0).notes[0]


def test_a_sealed_round_takes_no_more(fleet: Federation, trained: Path) -> None:
    fleet.seal_round(now=DUE)

    with pytest.raises(InvalidUpdateError, match="is sealed already") as caught:
        send(fleet, trained)
    assert caught.value.reason == "MISSED_DEADLINE"


def test_an_update_overtaken_by_the_seal_is_not_reported_as_sent(
    fleet: Federation, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = fleet.store.put_if_absent

    def sealed_first(key: str, data: bytes) -> Any:
        if key.endswith("update.json"):
            Federation.open(fleet.store.url).seal_round(now=DUE)
        return put(key, data)

    monkeypatch.setattr(fleet.store, "put_if_absent", sealed_first)

    with pytest.raises(InvalidUpdateError, match="on its way"):
        send(fleet, trained)
    assert row_of(fleet.load_sealed(), "p0").reason == "INCOMPLETE"


def test_before_the_first_round_nothing_is_sent(trained: Path, tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "a", tmp_path, opened=False)

    with pytest.raises(RoundStateError, match="has not opened a round yet"):
        send(fleet, trained)


def test_a_plant_needs_no_server_software() -> None:
    server = "{'pyarrow', 'scipy', 'torch', 'sklearn', 'pandas', 'mlflow', 'prefect'}"
    code = f"import sys, clma.client, clma.cli; print({server} & set(sys.modules))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "set()"


def test_what_was_sent_before_gets_its_receipt_only_once_it_is_on_the_disk(
    fleet: Federation, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt before may have failed because its folder could not be synced."""
    send(fleet, trained)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))

    with pytest.raises(StorageError, match=r"p0/update.json cannot be written"):
        send(fleet, trained)


def test_what_is_passed_on_unseen_is_refused_on_record(fleet: Federation, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.safetensors", model(np.nan))
    with pytest.raises(InvalidUpdateError, match="NaN"):
        send(fleet, bad)

    send(fleet, bad, checked=False)

    row = row_of(fleet.seal_round(now=DUE), "p0")
    assert (row.verdict, row.reason) == (Verdict.REJECTED, "NON_FINITE")
