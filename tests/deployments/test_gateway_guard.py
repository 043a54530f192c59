"""Who gets in: signed, fresh, new, not too often; and nobody learns who else there is."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from clma.updates.request_signing import authorize
from clma.updates.signing import fingerprint
from deployments._gateway_guard import GatewayLimits
from tests.clma.ledger.fleet import NOW
from tests.deployments.gateway_site import Site, key_of, signed_fleet

PAGES = ("offer", "terms", f"models/{'0' * 64}", "offer?drifted=true")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(signed_fleet(tmp_path / "store", tmp_path))


@pytest.mark.parametrize("page", PAGES)
def test_unsigned_request_is_refused(site: Site, page: str) -> None:
    answer = site.request("GET", f"/v1/federations/fleet/clients/p0/{page}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "CLMA-Ed25519")
    assert "not signed" in answer.json()["error"]


@pytest.mark.parametrize("page", PAGES)
def test_another_plants_key_is_refused(site: Site, page: str) -> None:
    assert site.ask("p0", page, key=key_of("p1")).status_code == 401


def test_plant_that_is_not_there_looks_like_one_with_another_key(site: Site) -> None:
    known = site.ask("p0", "offer", key=key_of("nobody"))
    unknown = site.ask("q0", "offer", key=key_of("nobody"))
    assert (known.status_code, unknown.status_code) == (401, 401)
    assert known.json()["error"].replace("p0", "q0") == unknown.json()["error"]


def test_revoked_key_is_refused_from_then_on(site: Site) -> None:
    assert site.ask("p0", "offer").status_code == 200
    site.federation.revoke_key("p0", fingerprint(key_of("p0").public))

    answer = site.ask("p0", "offer")

    assert (answer.status_code, "was revoked in round 1" in answer.json()["error"]) == (401, True)


def test_request_is_taken_once(site: Site) -> None:
    nonce = "ab" * 16
    assert site.ask("p0", "offer", nonce=nonce).status_code == 200
    again = site.ask("p0", "offer", nonce=nonce)
    assert (again.status_code, "made before" in again.json()["error"]) == (401, True)


def test_nonce_of_another_plant_is_free(site: Site) -> None:
    nonce = "ab" * 16
    assert [site.ask(c, "offer", nonce=nonce).status_code for c in ("p0", "p1")] == [200, 200]


@pytest.mark.parametrize("off_s", [-301, 301])
def test_request_of_another_time_is_refused_with_ours(site: Site, off_s: int) -> None:
    answer = site.ask("p0", "offer", now=NOW + dt.timedelta(seconds=off_s))
    assert answer.status_code == 401
    assert answer.json()["server_time_s"] == NOW.timestamp()


def test_request_from_the_future_is_not_taken_again_later(site: Site) -> None:
    signed = {"now": NOW + dt.timedelta(seconds=299), "nonce": "ab" * 16}
    assert site.ask("p0", "offer", **signed).status_code == 200
    site.now = NOW + dt.timedelta(seconds=598)
    assert site.ask("p0", "offer", **signed).status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        {"method": "PUT"},
        {"target": "/v1/federations/fleet/clients/p0/terms"},
        {"target": "/v1/federations/fleet/clients/p1/offer"},
        {"target": "/v1/federations/fleet/clients/p0/offer?drifted=true"},
    ],
)
def test_signature_is_for_one_method_and_one_address(site: Site, change: dict[str, str]) -> None:
    signed = {"method": "GET", "target": "/v1/federations/fleet/clients/p0/offer"}
    header = authorize(key_of("p0"), *signed.values(), now=NOW)
    asked = {**signed, **change}

    answer = site.request(asked["method"], asked["target"], headers={"Authorization": header})

    assert answer.status_code in ({401, 405} if "method" in change else {401})


@pytest.mark.parametrize("header", ["Bearer x", "CLMA-Ed25519 time=1", "\x7f" * 600])
def test_other_proofs_are_refused_in_one_line(site: Site, header: str) -> None:
    url = "/v1/federations/fleet/clients/p0/offer"
    answer = site.request("GET", url, headers={"Authorization": header})
    assert (answer.status_code, "\n" in answer.text) == (401, False)


def test_own_plants_are_told_that_the_federation_is_another(site: Site) -> None:
    answer = site.ask("p0", "offer", federation="north")
    assert (answer.status_code, answer.json()["kind"]) == (404, "UnknownFederationError")
    assert site.ask("p0", "offer", federation="north", key=key_of("x")).status_code == 401


def test_plant_that_asks_too_often_waits_and_nobody_else(tmp_path: Path) -> None:
    limits = GatewayLimits(requests_per_minute=6, burst=2)
    site = Site(signed_fleet(tmp_path / "store", tmp_path), limits)

    answers = [site.ask("p0", "offer") for _ in range(3)]
    other = site.ask("p1", "offer")
    site.now += dt.timedelta(seconds=10)

    assert [a.status_code for a in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "10"
    assert (other.status_code, site.ask("p0", "offer").status_code) == (200, 200)


def test_stranger_uses_up_nobodys_requests(tmp_path: Path) -> None:
    site = Site(signed_fleet(tmp_path / "store", tmp_path), GatewayLimits(burst=1))
    for _ in range(5):
        site.ask("p0", "offer", key=key_of("stranger"))
    assert site.ask("p0", "offer").status_code == 200


def test_forgotten_plant_is_nobody(site: Site) -> None:
    assert site.ask("p9", "offer").status_code == 401


@pytest.mark.parametrize("client_id", ["..%2Fp0", "p0%00", "%2e%2e", "a" * 65])
def test_odd_names_are_refused(site: Site, client_id: str) -> None:
    answer = site.request("GET", f"/v1/federations/fleet/clients/{client_id}/offer")
    assert answer.status_code in {401, 404, 422}
    assert set(answer.json()) == {"error", "kind", "reason", "server_time_s"}
