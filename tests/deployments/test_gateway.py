"""What a gateway gives to whom."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clma.ledger.keys import update_key
from clma.parameters.tensor_file import serialize_tensors
from clma.records import Cohort
from deployments._gateway_guard import GatewayLimits
from tests.clma.ledger.fleet import DUE, NOW, model
from tests.deployments.gateway_site import Site, message_of, signed_fleet, trained


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(signed_fleet(tmp_path / "store", tmp_path))


@pytest.fixture(params=["disk", "memory"])
def any_site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    url = str(tmp_path / "store") if request.param == "disk" else f"memory://{tmp_path}"
    return Site(signed_fleet(url, tmp_path))


def base_of(site: Site, client_id: str = "p0") -> str:
    return site.federation.state().clients[client_id].serving_digest


def serving_another(site: Site, client_id: str, data: bytes) -> str:
    """Give a plant a cohort of its own from the next round on; return its model."""
    state = site.federation.hold_round("test")
    digest = site.federation.add_model(data)
    moved = dataclasses.replace(state.clients[client_id], cohort_id="c1", serving_digest=digest)
    moves = dataclasses.replace(
        state,
        clients={**state.clients, client_id: moved},
        cohorts={**state.cohorts, "c1": Cohort("c1", "c0", 0, digest)},
    )
    site.federation.open_round(now=NOW, moves=moves)
    return digest


def test_plant_is_told_what_it_trains(site: Site) -> None:
    offer = site.ask("p0", "offer").json()

    assert (offer["client_id"], offer["round_num"], offer["cohort_id"]) == ("p0", 1, "c0")
    assert offer["base_digest"] == base_of(site)


def test_model_comes_whole_with_its_digest_as_tag(any_site: Site) -> None:
    answer = any_site.ask("p0", f"models/{base_of(any_site)}")

    assert hashlib.sha256(answer.content).hexdigest() == base_of(any_site)
    assert answer.headers["etag"] == f'"{base_of(any_site)}"'
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_rest_of_a_model_is_sent_on_its_own(any_site: Site) -> None:
    page = f"models/{base_of(any_site)}"
    whole = any_site.ask("p0", page).content

    rest = any_site.ask("p0", page, headers={"Range": "bytes=10-"})

    assert (rest.status_code, rest.content) == (206, whole[10:])
    assert rest.headers["content-range"] == f"bytes 10-{len(whole) - 1}/{len(whole)}"


@pytest.mark.parametrize(
    "headers",
    [{"Range": "bytes=0-4"}, {"Range": "lines=1-"}, {"Range": "bytes=5-", "If-Range": '"other"'}],
)
def test_other_parts_are_answered_with_the_whole(site: Site, headers: dict[str, str]) -> None:
    page = f"models/{base_of(site)}"
    assert site.ask("p0", page, headers=headers).content == site.ask("p0", page).content


def test_part_behind_the_end_is_refused(site: Site) -> None:
    answer = site.ask("p0", f"models/{base_of(site)}", headers={"Range": "bytes=999999-"})
    assert answer.status_code == 416


def test_model_that_the_plant_has_is_not_sent_again(site: Site) -> None:
    tag = {"If-None-Match": f'"{base_of(site)}"'}
    answer = site.ask("p0", f"models/{base_of(site)}", headers=tag)
    assert (answer.status_code, answer.content) == (304, b"")


def test_another_cohorts_model_is_refused_as_if_it_were_not_there(site: Site) -> None:
    digest = serving_another(site, "p1", b"model of c1")

    assert site.ask("p1", f"models/{digest}").content == b"model of c1"
    other, absent = site.ask("p0", f"models/{digest}"), site.ask("p0", f"models/{'0' * 64}")
    assert (other.status_code, absent.status_code) == (404, 404)
    assert other.json()["error"].replace(digest[:12], "0" * 12) == absent.json()["error"]


def test_update_is_accepted_at_the_seal(any_site: Site) -> None:
    tensors = trained()
    kept, sent = any_site.send("p0", tensors, message_of(any_site.federation, "p0", tensors))

    (update,) = any_site.federation.seal_round(now=DUE).updates

    assert (kept.status_code, sent.json()["tensors_wanted"]) == (201, False)
    assert (update.client_id, update.tensors.sha256) == ("p0", kept.json()["sha256"])


def test_message_without_tensors_writes_nothing(site: Site) -> None:
    receipt = site.ask("p0", "update", message_of(site.federation, "p0", trained()))

    assert receipt.json() == {"round_num": 1, "tensors_wanted": True, "duplicate": False}
    assert site.federation.store.list("inbox") == ()


def test_tensors_without_message_are_no_vote(site: Site) -> None:
    tensors = trained()
    digest = hashlib.sha256(tensors).hexdigest()
    assert site.ask("p0", f"rounds/1/tensors/{digest}", tensors).status_code == 201
    assert site.federation.seal_round(now=DUE).updates == ()


def test_the_same_again_changes_nothing_also_after_the_round(site: Site) -> None:
    tensors = trained()
    message = message_of(site.federation, "p0", tensors)
    site.send("p0", tensors, message)
    keys = site.federation.store.list("inbox")

    kept, sent = site.send("p0", tensors, message)
    site.federation.seal_round(now=DUE)
    late = site.ask("p0", "update", message)

    assert (kept.status_code, sent.json()["duplicate"]) == (201, True)
    assert late.json()["duplicate"]
    assert site.federation.store.list("inbox") == keys


def test_second_update_is_refused_and_the_first_stays(site: Site) -> None:
    first, second = trained(0.5), trained(0.7)
    site.send("p0", first, message_of(site.federation, "p0", first))

    answer = site.ask("p0", "update", message_of(site.federation, "p0", second))

    assert (answer.status_code, answer.json()["reason"]) == (409, "CONFLICTING_UPDATE")
    (update,) = site.federation.seal_round(now=DUE).updates
    assert update.tensors.sha256 == hashlib.sha256(first).hexdigest()


@pytest.mark.parametrize(
    ("reason", "tensors"),
    [
        ("NON_FINITE", serialize_tensors(model(head__bias=np.full(4, np.nan, np.float32)))),
        ("SHAPE_MISMATCH", serialize_tensors(model(head__bias=np.ones(1, np.float32)))),
        ("BAD_FORMAT", b"PK\x03\x04 a zip, perhaps"),
    ],
)
def test_tensors_pass_the_gate_of_the_seal(site: Site, reason: str, tensors: bytes) -> None:
    digest = hashlib.sha256(tensors).hexdigest()

    answer = site.ask("p0", f"rounds/1/tensors/{digest}", tensors)

    assert (answer.status_code, answer.json()["reason"]) == (422, reason)
    assert site.federation.store.list("inbox") == ()


@pytest.mark.parametrize(
    ("reason", "status", "fields"),
    [
        ("STALE_ROUND", 409, {"round_num": 0}),
        ("FUTURE_ROUND", 409, {"round_num": 2}),
        ("STALE_BASE", 409, {"base_digest": "0" * 64}),
        ("BAD_CLIENT_ID", 422, {"client_id": "p1"}),
        ("BAD_SIGNATURE", 422, {"signer": "p1"}),
        ("BAD_METADATA", 422, {"federation": "other"}),
    ],
)
def test_message_passes_the_gate_of_the_seal(
    site: Site, reason: str, status: int, fields: dict[str, object]
) -> None:
    message = message_of(site.federation, "p0", trained(), **{"signer": "p0", **fields})

    answer = site.ask("p0", "update", message)

    assert (answer.status_code, answer.json()["reason"]) == (status, reason)


def test_sealed_round_takes_no_more(site: Site) -> None:
    tensors = trained()
    message = message_of(site.federation, "p0", tensors)
    site.federation.seal_round(now=DUE)

    answers = site.send("p0", tensors, message)

    assert [a.json()["reason"] for a in answers] == ["MISSED_DEADLINE"] * 2


def test_files_of_tensors_in_a_round_are_bounded(tmp_path: Path) -> None:
    site = Site(signed_fleet(tmp_path / "store", tmp_path), GatewayLimits(n_tensors=2))
    files = [trained(float(i)) for i in range(3)]

    answers = [
        site.ask("p0", f"rounds/1/tensors/{hashlib.sha256(f).hexdigest()}", f) for f in files
    ]

    assert [a.status_code for a in answers] == [201, 201, 409]
    assert len(site.federation.store.list("inbox")) == 2


def test_update_lies_where_the_plants_own_submit_puts_it(site: Site) -> None:
    tensors = trained()
    message = message_of(site.federation, "p0", tensors)
    site.send("p0", tensors, message)
    assert site.federation.store.get(update_key(1, "p0", "update.json")) == message


def test_gateway_writes_into_the_inbox_and_nowhere_else(site: Site) -> None:
    folder = site.federation.store.folder
    assert folder is not None
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    site.send("p0", trained(), message_of(site.federation, "p0", trained()))
    site.ask("p0", f"models/{base_of(site)}")

    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    assert {p: after[p] for p in before} == before
    assert {p.relative_to(folder).parts[0] for p in after.keys() - before.keys()} == {"inbox"}


def test_gateway_needs_no_orchestrator() -> None:
    heavy = "{'prefect', 'mlflow', 'torch', 'pyarrow', 'scipy', 'pandas'}"
    code = f"import sys, deployments._gateway_app; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_health_needs_no_key_and_tells_nothing(site: Site) -> None:
    assert site.request("GET", "/health").json() == {"status": "ok"}


def test_health_says_that_the_store_is_damaged_and_no_more(site: Site) -> None:
    folder = site.federation.store.folder
    assert folder is not None
    (folder / "ledger" / "00000002.json").write_text("{}")

    answer = site.request("GET", "/health")

    assert answer.status_code == 503
    assert str(folder) not in answer.text
