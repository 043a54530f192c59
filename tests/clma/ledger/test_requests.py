from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from clma.client import request_round
from clma.client.pull import pull
from clma.errors import InvalidUpdateError, PolicyError, RoundStateError, UnknownClientError
from clma.forget import forget_client
from clma.ledger.federation import Federation
from clma.ledger.keys import request_key
from clma.ledger.requests import open_requests
from clma.updates.signing import SigningKey
from tests.clma.ledger.fleet import DUE, NOW, make_fleet

KEY = SigningKey.from_seed(bytes(32))


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


def asking(fleet: Federation) -> list[str]:
    found = open_requests(fleet.store, fleet.state(), fleet.config)
    return [r.request.client_id for r in found]


def test_clients_that_ask_are_found(fleet: Federation) -> None:
    for client_id in ("p2", "p0"):
        assert not request_round(fleet, "fleet", client_id).duplicate
    assert asking(fleet) == ["p0", "p2"]


def test_asking_again_writes_nothing(fleet: Federation) -> None:
    request_round(fleet, "fleet", "p0")
    keys = fleet.store.list("requests")

    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    again = request_round(fleet, "fleet", "p0", measure="mean_entropy", now=later)

    assert again.duplicate
    assert fleet.store.list("requests") == keys


def test_request_ends_with_its_round(fleet: Federation) -> None:
    request_round(fleet, "fleet", "p0")
    fleet.hold_round("test")
    fleet.open_round(now=NOW)
    assert (asking(fleet), fleet.store.list("requests")) == ([], ())


def test_deployed_model_that_is_old_is_to_be_replaced_first(
    fleet: Federation, tmp_path: Path
) -> None:
    pulled = pull(fleet, "fleet", "p0", tmp_path / "m.safetensors")
    fields = {name: getattr(pulled, name) for name in pulled.__slots__}
    old = type(pulled)(**{**fields, "base_digest": "0" * 64})
    with pytest.raises(InvalidUpdateError, match="pull and deploy that first"):
        request_round(fleet, "fleet", "p0", pulled=old)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"round": {"extra_requests": 0}}, RoundStateError, "extra_requests is 0"),
        ({"privacy": {"share": ["weights", "examples"]}}, PolicyError, "lacks 'flag'"),
        ({"identity": {"updates": "signed"}}, InvalidUpdateError, "request is not signed"),
    ],
)
def test_settings_may_forbid_it(
    tmp_path: Path, settings: dict[str, Any], error: type[Exception], match: str
) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, preset="fedavg", **settings)
    with pytest.raises(error, match=match):
        request_round(fleet, "fleet", "p0")
    assert fleet.store.list("requests") == ()


def test_sealed_round_is_not_asked_for(fleet: Federation) -> None:
    fleet.seal_round(now=DUE)
    with pytest.raises(RoundStateError, match="is sealed, wanted open"):
        request_round(fleet, "fleet", "p0")


def test_strangers_ask_in_vain(fleet: Federation) -> None:
    with pytest.raises(UnknownClientError):
        request_round(fleet, "fleet", "nobody")


def test_signed_request_is_found_among_what_others_dropped(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, identity={"updates": "signed"})
    fleet.add_key("p0", KEY.public)
    for number, data in enumerate((b"", b"{}", b"x" * 9000)):
        fleet.store.put_once(request_key(1, "p0", f"{number}" * 64), data)
    fleet.store.put_once("requests/round=000001/loose", b"x")

    assert not request_round(fleet, "fleet", "p0", key=KEY).duplicate
    assert asking(fleet) == ["p0"]


def test_request_under_another_clients_name_counts_for_nobody(fleet: Federation) -> None:
    request_round(fleet, "fleet", "p0")
    (key,) = fleet.store.list("requests")
    fleet.store.put_once(key.replace("p0", "p1"), fleet.store.get(key))
    assert asking(fleet) == ["p0"]


def test_revoked_key_asks_for_nothing(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, identity={"updates": "signed"})
    fleet.add_key("p0", KEY.public)
    request_round(fleet, "fleet", "p0", key=KEY)
    fleet.revoke_key("p0", KEY.public)
    assert asking(fleet) == []


def test_forgotten_clients_request_is_removed(fleet: Federation) -> None:
    request_round(fleet, "fleet", "p0")
    request_round(fleet, "fleet", "p1")
    forget_client(fleet, "p0", reaggregate=False)
    assert [key.split("/")[2] for key in fleet.store.list("requests")] == ["p1"]
