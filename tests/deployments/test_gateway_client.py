"""The plant's own functions and commands, through a gateway on loopback."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.cli import main
from clma.client import pull, request_round, status, submit
from clma.client.pull import read_note
from clma.client.submit import SubmitReceipt
from clma.errors import (
    DamagedStoreError,
    InvalidConfigError,
    InvalidUpdateError,
    UnauthorizedError,
    UnknownFederationError,
)
from clma.ledger.federation import Federation
from clma.ledger.requests import open_requests
from clma.updates.round_request import RoundRequest, request_bytes, sign_request
from deployments._gateway_app import create_app
from tests.clma.ledger.fleet import DUE, model, written
from tests.deployments.gateway_site import Site, key_of, on_loopback, signed_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return signed_fleet(tmp_path / "store", tmp_path)


@pytest.fixture
def url(fleet: Federation) -> Iterator[str]:
    with on_loopback(create_app(fleet)) as address:
        yield address + "/"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return written(tmp_path / "trained.safetensors", model(0.5))


def send(url: str, tensors: Path, client_id: str = "p0", **fields: Any) -> SubmitReceipt:
    values = {"n_examples": 100, "drift_flag": False, "key": key_of(client_id), **fields}
    return submit(url, "fleet", client_id, tensors=tensors, **values)


def test_pull_says_and_writes_what_it_would_from_the_store(
    fleet: Federation, url: str, tmp_path: Path
) -> None:
    near = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")
    bytes_near = near.path.read_bytes()
    near.path.unlink()

    far = pull(url, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))

    assert far == near == read_note(far.path)
    assert far.path.read_bytes() == bytes_near


def test_without_the_gateway_the_last_good_model_serves(
    fleet: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clma.client.line.N_ATTEMPTS", 1)
    with on_loopback(create_app(fleet)) as address:
        before = pull(address, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))

    pulled = pull(address, "fleet", "p0", before.path, key=key_of("p0"))

    assert "does not answer" in str(pulled.offline)
    assert pulled.base_digest == before.base_digest


def test_update_through_the_gateway_counts_as_one_from_the_store(
    fleet: Federation, url: str, trained: Path, tmp_path: Path
) -> None:
    twin = signed_fleet(tmp_path / "twin", tmp_path)
    receipts = [
        send(url, trained, drift_flag=True),
        send(str(twin.store.folder), trained, drift_flag=True),
    ]

    far, near = (f.seal_round(now=DUE).updates for f in (fleet, twin))

    assert receipts[0] == receipts[1]
    assert far == near
    assert len(far) == 1


def test_the_same_again_changes_nothing_also_after_the_round(
    fleet: Federation, url: str, trained: Path
) -> None:
    assert not send(url, trained).duplicate
    keys = fleet.store.list("inbox")
    assert send(url, trained).duplicate
    assert fleet.store.list("inbox") == keys
    fleet.seal_round(now=DUE)
    assert send(url, trained).duplicate


@pytest.mark.parametrize(
    ("reason", "tensors", "fields"),
    [
        ("NON_FINITE", model(head__bias=np.full(4, np.nan, np.float32)), {}),
        ("SHAPE_MISMATCH", model(head__bias=np.ones(1, np.float32)), {}),
        ("BAD_EXAMPLES", model(0.5), {"n_examples": -1}),
        ("STALE_BASE", model(0.5), {"base_digest": "0" * 64}),
        ("FUTURE_ROUND", model(0.5), {"round_num": 9}),
    ],
)
def test_plant_learns_at_once_what_the_server_would_say(
    fleet: Federation, url: str, tmp_path: Path, reason: str, tensors: Any, fields: dict[str, Any]
) -> None:
    path = written(tmp_path / "t.safetensors", tensors)
    with pytest.raises(InvalidUpdateError) as caught:
        send(url, path, **fields)
    assert caught.value.reason == reason
    assert fleet.store.list("inbox") == ()


def test_second_update_is_refused(url: str, trained: Path, tmp_path: Path) -> None:
    send(url, trained)
    with pytest.raises(InvalidUpdateError, match="was sent before"):
        send(url, written(tmp_path / "other.safetensors", model(0.7)))


def test_loss_stays_at_the_plant_unless_it_is_shared(url: str, trained: Path) -> None:
    assert "not sent" in send(url, trained, loss=0.5).notes[0]


def test_status_is_that_of_the_store_and_of_nobody_else(
    fleet: Federation, url: str, trained: Path
) -> None:
    send(url, trained)
    far, near = (status(place, "fleet", "p0", key=key_of("p0")) for place in (url, fleet))
    assert far == near
    text = Site(fleet).ask("p0", "status").text
    assert not any(name in text for name in ("p1", "p2"))


def test_plant_asks_for_a_round_once(fleet: Federation, url: str) -> None:
    asked = [request_round(url, "fleet", "p0", key=key_of("p0")) for _ in range(2)]
    requests = open_requests(fleet.store, fleet.state(), fleet.config)
    assert [a.duplicate for a in asked] == [False, True]
    assert [r.request.client_id for r in requests] == ["p0"]


def test_requests_of_others_are_refused(fleet: Federation) -> None:
    request = RoundRequest("fleet", "p1", 1, "0" * 64, "loss", "2026-01-01T10:00:00+00:00")
    answer = Site(fleet).ask("p0", "request", request_bytes(sign_request(request, key_of("p1"))))
    assert (answer.status_code, answer.json()["reason"]) == (422, "BAD_CLIENT_ID")


def test_key_may_come_from_the_environment(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten lines stay the same: address and key are what changes around them."""
    with pytest.raises(InvalidConfigError, match="CLMA_CLIENT_KEY"):
        pull(url, "fleet", "p0", tmp_path / "m.safetensors")
    monkeypatch.setenv("CLMA_CLIENT_KEY", str(tmp_path / "gone.key"))
    with pytest.raises(InvalidConfigError, match=r"gone\.key"):
        pull(url, "fleet", "p0", tmp_path / "m.safetensors")


def test_commands_take_a_gateway_for_the_store(
    fleet: Federation, url: str, tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = str(tmp_path / "p3.key")
    main_quietly("client", "keygen", "--client", "p3", "--key", key, "--json")
    public = json.loads(capsys.readouterr().out)["public_key"]
    fleet.register_client("p3", public_key=public)
    place = ["--store", url, "--federation", "fleet", "--client", "p3", "--key", key, "--json"]

    main_quietly("client", "pull", *place, "--out", str(tmp_path / "m.safetensors"))
    main_quietly("client", "submit", *place, "--update", str(trained), "--examples", "5")

    assert [u.client_id for u in fleet.seal_round(now=DUE).updates] == ["p3"]


def main_quietly(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_strangers_and_other_federations_are_named_in_one_line(url: str, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    with pytest.raises(UnauthorizedError, match="no registered key"):
        pull(url, "fleet", "p0", out, key=key_of("stranger"))
    with pytest.raises(UnknownFederationError, match="federation is 'fleet', not 'north'"):
        pull(url, "north", "p0", out, key=key_of("p0"))


def test_plant_with_a_wrong_clock_is_served(fleet: Federation, tmp_path: Path) -> None:
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(days=400)
    with on_loopback(create_app(fleet, clock=lambda: ahead)) as address:
        pulled = pull(address, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))
    assert pulled.round_num == 1


def test_changed_model_is_never_written(fleet: Federation, url: str, tmp_path: Path) -> None:
    digest = fleet.state().clients["p0"].serving_digest
    size = fleet.store.info(f"models/{digest}.safetensors").size_bytes
    fleet.store.replace(f"models/{digest}.safetensors", b"x" * size)
    with pytest.raises(DamagedStoreError, match="recorded is"):
        pull(url, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))
    assert not (tmp_path / "m.safetensors").exists()


def test_model_of_many_pieces_comes_whole(tmp_path: Path) -> None:
    large = model(head__bias=np.arange(3_000_000, dtype=np.float32))
    fleet = signed_fleet(tmp_path / "store", tmp_path, large)
    with on_loopback(create_app(fleet)) as address:
        pulled = pull(address, "fleet", "p0", tmp_path / "m.safetensors", key=key_of("p0"))
        sent = send(address, written(tmp_path / "t.safetensors", large))
    assert sent.digest == pulled.base_digest
    assert [u.client_id for u in fleet.seal_round(now=DUE).updates] == ["p0"]


def test_many_plants_at_once_all_count(tmp_path: Path) -> None:
    fleet = signed_fleet(tmp_path / "store", tmp_path)
    paths = [written(tmp_path / f"{i}.safetensors", model(float(i))) for i in range(3)]
    with on_loopback(create_app(fleet)) as address, ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda i: send(address, paths[i], f"p{i}"), range(3)))
    assert len(fleet.seal_round(now=DUE).updates) == 3
