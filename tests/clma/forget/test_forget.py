"""A client is forgotten: nothing but the tombstone names it, and everything else still holds."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clma.errors import RoundStateError, UnknownClientError
from clma.forget import forget_client, plan_forget
from clma.ledger.audit import audit
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.keys import entry_key
from clma.ledger.store import Store
from clma.ledger.tables import TABLE_NAMES, read_rows
from clma.night import close_round
from clma.onboarding.carry_out import note_down, write_plan
from clma.onboarding.plan import plan_cohorts
from clma.records import ClientStatus, CohortStatus
from tests.clma.ledger.fleet import NOW, drop, make_fleet, model
from tests.clma.onboarding.fleet import found, onboard, send, send_all, signature

GONE = "p1"
N_CLIENTS = 5


def pass_night(federation: Federation, drifted: tuple[str, ...] = ()) -> None:
    """Everybody sends; the drifted ones go their own way together."""
    for i, client_id in enumerate(federation.state().clients):
        if client_id.startswith("forgotten"):
            continue
        base = federation.state().clients[client_id].serving_digest
        with federation.open_tensors(federation.model_ref(base)) as file:
            tensors: dict[str, Any] = {s.name: np.array(file.read(s.name)) for s in file.specs}
        step = np.full((4, 3), 0.1 * (i + 1), np.float32)
        step[0] *= 50 if client_id in drifted else 1
        tensors["head.weight"] = tensors["head.weight"] + step
        drop(federation, client_id, tensors, drift_flag=client_id in drifted, n_examples=10 + i)
    close_round(federation, now=NOW, force=True)


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    """Three nights behind it: everybody in c0, then p1 and p2 found c1, then p1 keeps voting."""
    made = make_fleet(tmp_path / "store", tmp_path, N_CLIENTS)
    pass_night(made)
    pass_night(made, drifted=(GONE, "p2"))
    pass_night(made)
    drop(made, GONE, model(3.0))
    drop(made, "p3", model(3.0))
    assert {made.state().clients[c].cohort_id for c in (GONE, "p2")} == {"c1"}
    return made


def names(store: Path, client_id: str) -> set[str]:
    """Return the files that name a client: in their path, as text, or in a table's cell."""
    found = set()
    for path in (p for p in store.rglob("*") if p.is_file()):
        place = str(path.relative_to(store))
        data = path.read_bytes()
        cells = str(pq.read_table(io.BytesIO(data)).to_pylist()) if ".parquet" in place else ""
        quoted = f"'{client_id}'"
        if (
            client_id in place.replace(".", "/").split("/")
            or quoted in cells
            or f'"{client_id}"'.encode() in data
        ):
            found.add(place)
    return found


def test_a_dry_run_writes_nothing_and_tells_all(fleet: Federation) -> None:
    before = {k: fleet.store.get(k) for k in fleet.store.list()}

    plan = plan_forget(fleet, GONE, reaggregate=True)

    assert {k: fleet.store.get(k) for k in fleet.store.list()} == before
    assert [(m.round_num, m.cohort_id) for m in plan.influenced] == [
        (1, "c0"),
        (2, "c1"),
        (3, "c1"),
    ]
    assert plan.influenced[0].share == pytest.approx(11 / 60)
    assert all(m.new_digest for m in plan.influenced)


def test_nothing_but_the_tombstone_names_a_forgotten_client(fleet: Federation) -> None:
    store = Path(fleet.store.url)
    assert len(names(store, GONE)) > 20

    plan = forget_client(fleet, GONE)

    tombstone = entry_key(len(fleet.entries()) - 1)
    assert names(store, GONE) == {tombstone}
    assert not list(store.rglob(GONE))
    assert fleet.entries()[-1].kind is EntryKind.CLIENT_FORGOTTEN
    assert plan.client_id == GONE


def test_the_store_verifies_and_reads_after_it(fleet: Federation) -> None:
    forget_client(fleet, GONE)

    again = Federation.open(fleet.store.url)

    assert audit(again).problems == ()
    assert again.state() == fleet.state()
    assert [len(again.sealed_round(r).updates) for r in (1, 2, 3)] == [4, 4, 4]


def test_rows_of_the_others_are_as_they_were(fleet: Federation) -> None:
    before = {(r, n): read_rows(fleet.store, r, n) for r in (1, 2, 3) for n in TABLE_NAMES}

    forget_client(fleet, GONE)

    for (round_num, name), rows in before.items():
        kept = [row for row in rows if getattr(row, "client_id", "") != GONE]
        found = read_rows(fleet.store, round_num, name)
        if name != "cohorting":  # its column `nearest` named the client
            assert found == tuple(kept)
        assert len(found) == len(kept)


def test_models_stay_unless_they_are_made_again(fleet: Federation) -> None:
    before = fleet.state()

    plan = forget_client(fleet, GONE)

    state = fleet.state()
    assert {m.new_digest for m in plan.influenced} == {None}
    assert state.cohorts == before.cohorts
    assert state.clients["p2"] == before.clients["p2"]
    (tombstone,) = (c for c in state.clients.values() if c.status is ClientStatus.FORGOTTEN)
    assert tombstone.client_id == plan.pseudonym


def test_models_made_again_are_averages_of_the_others(fleet: Federation) -> None:
    store = Path(fleet.store.url)
    old = {m.model_digest for m in plan_forget(fleet, GONE).influenced}

    plan = forget_client(fleet, GONE, reaggregate=True)

    first, _, newest = plan.influenced
    with fleet.open_tensors(fleet.model_ref(first.new_digest or "")) as file:
        shares = np.array([10, 12, 13, 14]) / 49
        expected = 1 + 0.1 * (np.array([1, 3, 4, 5]) @ shares)
        np.testing.assert_allclose(file.read("head.weight")[1], expected, rtol=1e-6)
    assert fleet.state().cohorts["c1"].model_digest == newest.new_digest
    assert fleet.state().clients["p2"].serving_digest == newest.new_digest
    assert not old & {p.stem for p in store.glob("models/*")}
    assert audit(Federation.open(store)).problems == ()


@pytest.mark.parametrize(("method", "wanted"), [("median", 1 + 0.1 * 3.5), ("krum", 1.0)])
def test_models_made_again_are_made_by_the_rule_of_their_night(
    tmp_path: Path, method: str, wanted: float
) -> None:
    """Where the others are too few for it, the cohort goes back to the model before."""
    fleet = make_fleet(tmp_path / "store", tmp_path, N_CLIENTS, aggregation={"method": method})
    pass_night(fleet)

    plan = forget_client(fleet, GONE, reaggregate=True)

    with fleet.open_tensors(fleet.model_ref(plan.influenced[0].new_digest or "")) as file:
        np.testing.assert_allclose(file.read("head.weight"), wanted, rtol=1e-6)


def test_a_model_that_only_this_client_made_gives_way_to_the_one_before(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, 3)
    pass_night(fleet)
    pass_night(fleet, drifted=(GONE,))
    made = fleet.state().cohorts["c1"]

    plan = forget_client(fleet, GONE, reaggregate=True)

    in_c0, in_c1 = plan.influenced
    assert (in_c1.model_digest, in_c1.share) == (made.model_digest, 1.0)
    assert fleet.state().cohorts["c1"].status is CohortStatus.DORMANT
    # What c1 was born from was made with the client's update, too.
    assert (in_c0.model_digest, in_c0.new_digest) == (made.origin_digest, in_c1.new_digest)


def test_what_a_cohort_was_born_with_is_made_again_too(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path, 3)
    pass_night(fleet)
    pass_night(fleet, drifted=(GONE, "p2"))
    birth = fleet.state().cohorts["c1"].birth_digest
    pass_night(fleet)

    plan = forget_client(fleet, GONE, reaggregate=True)

    [again] = [m.new_digest for m in plan.influenced if m.model_digest == birth]
    assert again is not None
    assert fleet.state().cohorts["c1"].birth_digest == again


def test_those_who_trained_from_a_model_made_again_can_send_again(fleet: Federation) -> None:
    drop(fleet, "p2", model(2.0))

    plan = forget_client(fleet, GONE, reaggregate=True)

    assert plan.resubmit == ("p2",)
    drop(fleet, "p2", model(2.5))
    sealed = fleet.seal_round(now=NOW, force=True)
    assert [u.client_id for u in sealed.updates] == ["p2", "p3"]


def test_nights_go_on_without_it(fleet: Federation) -> None:
    forget_client(fleet, GONE)
    close_round(fleet, now=NOW, force=True)

    pass_night(fleet, drifted=("p0",))

    assert audit(Federation.open(fleet.store.url)).problems == ()
    rows = read_rows(fleet.store, 5, "assignments")
    assert [r.status.value for r in rows if r.client_id.startswith("forgotten")] == ["forgotten"]


def test_the_id_can_be_registered_anew(fleet: Federation) -> None:
    forget_client(fleet, GONE)

    state = fleet.register_client(GONE)

    assert (state.clients[GONE].cohort_id, state.clients[GONE].n_updates) == ("c0", 0)
    assert audit(Federation.open(fleet.store.url)).problems == ()
    forget_client(fleet, GONE)
    assert GONE not in Federation.open(fleet.store.url).state().clients


@pytest.mark.parametrize("stop_after", range(0, 30, 5))
def test_a_forgetting_that_was_killed_is_found_and_finished(
    fleet: Federation, tmp_path: Path, stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after so many changes to files; the entry is there, whatever is done of it."""
    left = iter(range(stop_after))

    def killed_later(act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return act(*args)

        return acting

    with monkeypatch.context() as patch:
        for name in ("replace", "delete"):
            patch.setattr(Store, name, killed_later(getattr(Store, name)))
        with pytest.raises(KeyboardInterrupt):
            forget_client(fleet, GONE, reaggregate=True)
    again = Federation.open(fleet.store.url)
    if GONE not in again.state().clients:
        assert any("forgotten" in problem for problem in audit(again).problems)

    forget_client(again, GONE, reaggregate=True)

    assert audit(Federation.open(fleet.store.url)).problems == ()
    kinds = [e.kind for e in again.entries()]
    assert kinds.count(EntryKind.CLIENT_FORGOTTEN) == 1
    assert names(Path(fleet.store.url), GONE) == {entry_key(len(kinds) - 1)}


def test_who_is_not_there_cannot_be_forgotten(fleet: Federation) -> None:
    with pytest.raises(UnknownClientError, match="client 'nobody' is not registered"):
        forget_client(fleet, "nobody")


def test_a_sealed_round_is_decided_first(fleet: Federation) -> None:
    fleet.seal_round(now=NOW, force=True)

    with pytest.raises(RoundStateError, match="round 4 is sealed: run the night, then forget"):
        forget_client(fleet, GONE)


def test_a_schedule_names_it_no_more(tmp_path: Path) -> None:
    labels = {f"p{i}": "a" for i in range(3)}
    schedule = [{"from_round": 1, "labels": labels}]
    fleet = make_fleet(
        tmp_path / "store",
        tmp_path,
        preset="oracle",
        cohorting={"method": "given", "schedule": schedule},
    )

    forget_client(fleet, GONE)

    store = Path(fleet.store.url)
    assert GONE not in (store / "federation.toml").read_text()
    assert names(store, GONE) == {entry_key(2)}
    drop(fleet, "p0")
    close_round(Federation.open(store), now=NOW, force=True)
    assert audit(Federation.open(store)).problems == ()


def test_a_copy_of_the_folder_is_a_backup(fleet: Federation, tmp_path: Path) -> None:
    shutil.copytree(fleet.store.url, tmp_path / "elsewhere" / "copy")
    copy = Federation.open(tmp_path / "elsewhere" / "copy")
    assert audit(copy).problems == ()

    for federation in (fleet, copy):
        close_round(federation, now=NOW, force=True)

    assert copy.state().cohorts == fleet.state().cohorts
    assert [read_rows(copy.store, 4, n) for n in TABLE_NAMES] == [
        read_rows(fleet.store, 4, n) for n in TABLE_NAMES
    ]


@pytest.mark.parametrize("client_id", ["c0", "open", "active", "phase", "clients", "updates"])
def test_a_client_may_be_called_like_anything_in_the_ledger(tmp_path: Path, client_id: str) -> None:
    fleet = make_fleet(tmp_path / "store", tmp_path)
    fleet.register_client(client_id)
    pass_night(fleet)
    before = fleet.state()

    forget_client(fleet, client_id)

    again = Federation.open(fleet.store.url)
    assert audit(again).problems == ()
    assert again.state().cohorts == before.cohorts
    assert again.state().clients.keys() & before.clients.keys() == {"p0", "p1", "p2"}


def optimised(tmp_path: Path, optimizer: str) -> Federation:
    """Three nights behind it: everybody in c0, then p2 alone founds c1."""
    made = make_fleet(
        tmp_path / "store", tmp_path, N_CLIENTS, aggregation={"server_optimizer": optimizer}
    )
    pass_night(made)
    pass_night(made, drifted=("p2",))
    pass_night(made)
    return made


def memories(federation: Federation, cohort_id: str) -> list[str]:
    """Return what the server's optimiser remembered after every night of a cohort."""
    states = [federation.state_at_commit(r) for r in federation.committed_rounds()]
    return [str(s.cohorts[cohort_id].optimizer_digest) for s in states if cohort_id in s.cohorts]


@pytest.mark.parametrize("optimizer", ["flash", "adaptive_fedavg"])
@pytest.mark.parametrize("reaggregate", [False, True])
def test_the_memory_of_the_cohorts_it_voted_in_is_dropped(
    tmp_path: Path, optimizer: str, reaggregate: bool
) -> None:
    """All of it since then: every later night's is made from the one before."""
    fleet = optimised(tmp_path, optimizer)
    before = fleet.state().cohorts
    gone, kept = memories(fleet, "c0"), memories(fleet, "c1")

    forget_client(fleet, GONE, reaggregate=reaggregate)

    cohorts = fleet.state().cohorts
    assert (cohorts["c0"].optimizer_digest, cohorts["c0"].learning_rate_factor) == (None, 1.0)
    assert cohorts["c1"].optimizer_digest == before["c1"].optimizer_digest
    stored = {path.stem for path in Path(fleet.store.url).glob("models/*")}
    assert (len(set(gone)), len(set(kept))) == (3, 2)
    assert not stored & set(gone)
    assert stored >= set(kept)


@pytest.mark.parametrize("reaggregate", [False, True])
def test_nights_go_on_after_a_memory_was_dropped(tmp_path: Path, reaggregate: bool) -> None:
    fleet = optimised(tmp_path, "flash")
    forget_client(fleet, GONE, reaggregate=reaggregate)

    pass_night(fleet)

    again = Federation.open(fleet.store.url)
    assert again.state().cohorts["c0"].optimizer_digest is not None
    assert audit(again).problems == ()


def test_an_audit_looks_at_what_optimisers_remember(tmp_path: Path) -> None:
    fleet = optimised(tmp_path, "flash")
    assert audit(fleet).problems == ()

    (Path(fleet.store.url) / f"models/{memories(fleet, 'c0')[1]}.safetensors").unlink()

    (problem,) = audit(Federation.open(fleet.store.url)).problems
    assert memories(fleet, "c0")[1] in problem


def test_signatures_and_what_they_led_to_are_forgotten(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path)
    send_all(fleet)
    onboard(fleet)
    fleet.register_client("late")
    send(fleet, "late", signature("south", 7))
    pass_night(fleet)

    for client_id in (GONE, "late"):
        assert len(names(tmp_path / "store", client_id)) > 5
        forget_client(fleet, client_id)

        tombstone = entry_key(len(fleet.entries()) - 1)
        assert names(tmp_path / "store", client_id) == {tombstone}
    assert audit(fleet).problems == ()


def test_planned_cohorts_are_carried_out_without_a_client_that_was_forgotten(
    tmp_path: Path,
) -> None:
    fleet = found(tmp_path / "store", tmp_path)
    send_all(fleet)
    onboard(fleet)
    for client_id in (GONE, "p2"):
        send(fleet, client_id, signature("south", 20))
    note_down(fleet, write_plan(fleet, plan_cohorts(fleet, keep=True)), now=NOW)

    forget_client(fleet, GONE)
    pass_night(fleet)

    assert fleet.state().clients["p2"].cohort_id == "c1"
    assert audit(fleet).problems == ()
