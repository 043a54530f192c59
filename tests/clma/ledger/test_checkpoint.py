"""State is read from a checkpoint that the chain vouches for, or else from the chain itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clma.doctor import examine
from clma.errors import ConflictError, DamagedStoreError
from clma.forget import forget_client
from clma.ledger import journal
from clma.ledger.audit import audit
from clma.ledger.chain import Chain, EntryKind
from clma.ledger.checkpoint import N_KEPT, Checkpoint, Checkpoints, checkpoint_of
from clma.ledger.federation import Federation
from clma.ledger.keys import CHECKPOINTS_PREFIX, LEDGER_PREFIX
from clma.ledger.state import fold
from clma.ledger.store import Store
from clma.night import close_round
from clma.records import FederationState
from tests.clma.ledger.fleet import DUE, NOW, drop, make_fleet
from tests.clma.ledger.refusing import refuse_with


def pass_rounds(federation: Federation, n_rounds: int) -> None:
    """Hold so many rounds and open the next ones."""
    for _ in range(n_rounds):
        federation.hold_round("test")
        federation.open_round(now=NOW)


def files(federation: Federation) -> tuple[str, ...]:
    return federation.store.list(CHECKPOINTS_PREFIX)


@contextmanager
def counted_entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the keys of the entries that are read from any store."""
    read: list[str] = []
    get = Store.get

    def counting(store: Store, key: str) -> bytes:
        data = get(store, key)
        read.extend([key] if key.startswith(LEDGER_PREFIX) else [])
        return data

    with monkeypatch.context() as patch:
        patch.setattr(Store, "get", counting)
        yield read


@pytest.fixture
def old(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    """A federation of before there were checkpoints, with three rounds."""
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_WITH_CHECKPOINT", frozenset())
        made = make_fleet(url, tmp_path)
        pass_rounds(made, 2)
    return made


def test_opening_reads_as_many_entries_after_many_rounds_as_after_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 30)

    with counted_entries(monkeypatch) as read:
        state = Federation.open(url).state()

    assert state.round_num == 31
    assert len(read) == 1


def test_a_night_reads_no_round_before_the_last(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 9)
    drop(federation, "p0")

    with counted_entries(monkeypatch) as read:
        close_round(Federation.open(url), now=DUE)

    opened_before = federation.journal.find(EntryKind.ROUND_OPENED, 9)
    assert opened_before is not None
    assert min(read) > f"{LEDGER_PREFIX}/{opened_before.number - 2:08d}"


def test_what_a_checkpoint_says_is_what_the_entries_come_to(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.register_client("new")
    for _ in range(3):
        drop(federation, "p0")
        close_round(federation, now=NOW, force=True)

    reader = Federation.open(url)

    assert reader.committed_rounds() == (1, 2, 3)
    assert reader.state() == fold(reader.journal.reread())


@pytest.mark.parametrize("damage", ["deleted", "edited", "all deleted"])
def test_a_checkpoint_that_cannot_be_used_is_passed_over(
    url: str, tmp_path: Path, damage: str
) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 3)
    for key in files(federation) if damage.startswith("all") else files(federation)[-1:]:
        if damage == "edited":
            federation.store.replace(key, federation.store.get(key).replace(b"p0", b"p9"))
        else:
            federation.store.delete(key)

    reader = Federation.open(url)

    assert reader.state() == fold(federation.entries())
    assert len(audit(reader).problems) == (N_KEPT if damage.startswith("all") else 1)


def test_the_doctor_says_that_nothing_is_lost(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    federation.store.delete(files(federation)[0])

    told = [d.line for d in examine(Federation.open(url), now=NOW).differences]

    assert [line for line in told if "checkpoints/" in line and "nothing is lost" in line]


def test_a_checkpoint_that_says_something_else_than_the_entries_is_found(
    url: str, tmp_path: Path
) -> None:
    federation = make_fleet(url, tmp_path)
    n_entries = federation.journal.n_entries()
    wrong = dataclasses.replace(federation.state(), round_num=7)
    ref = Checkpoints(federation.store).write(Checkpoint(n_entries, wrong))
    payload = {"round": 1, "checkpoint": dataclasses.asdict(ref)}
    Chain(federation.store).append(EntryKind.ROUND_OPENED, payload, expected_number=n_entries)

    (problem,) = audit(Federation.open(url)).problems

    assert problem == f"{ref.path} is not what the ledger comes to"


def test_the_newest_checkpoints_stay(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 5)

    named = [ref.path for e in federation.entries() if (ref := checkpoint_of(e))]

    assert list(files(federation)) == named[-N_KEPT:]
    assert audit(Federation.open(url)).problems == ()


def test_a_federation_without_checkpoints_opens_and_gets_one(url: str, old: Federation) -> None:
    assert files(old) == ()
    reader = Federation.open(url)
    assert (reader.state(), audit(reader).problems) == (fold(reader.entries()), ())

    pass_rounds(reader, 1)

    assert len(files(old)) == 1
    assert Federation.open(url).state() == fold(reader.journal.reread())


def test_clients_that_register_one_by_one_make_opening_no_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet("memory://one-by-one", tmp_path)
    for number in range(150):
        federation.register_client(f"q{number}")

    with counted_entries(monkeypatch) as read:
        state = Federation.open("memory://one-by-one").state()

    assert len(state.clients) == 153
    assert len(read) <= 65


def test_entries_name_no_checkpoint_of_another_entry(url: str, tmp_path: Path) -> None:
    """An entry that was copied over another one brings no state with it."""
    federation = make_fleet(url, tmp_path)
    entry = federation.journal.newest_entry()

    assert checkpoint_of(entry) is not None
    assert checkpoint_of(dataclasses.replace(entry, number=entry.number + 1)) is None


def test_who_comes_second_leaves_no_checkpoint(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet(url, tmp_path)
    federation.hold_round("test")
    late = Federation.open(url).journal.newest()
    Federation.open(url).register_client("new")

    with pytest.raises(ConflictError):
        federation.journal.append(EntryKind.ROUND_OPENED, {"round": 2}, late.number + 1, NOW)

    assert [int(key[12:20]) for key in files(federation)] == [1]


def test_who_comes_second_with_the_same_leaves_the_first_ones(url: str, tmp_path: Path) -> None:
    federation, other = make_fleet(url, tmp_path, opened=False), Federation.open(url)
    number = federation.journal.n_entries()
    federation.journal.append(EntryKind.ROUND_OPENED, {"round": 1}, number, NOW)

    with pytest.raises(ConflictError):
        other.journal.append(EntryKind.ROUND_OPENED, {"round": 1}, number, NOW)

    assert len(files(federation)) == 1
    assert audit(Federation.open(url)).problems == ()


def test_forgetting_a_client_leaves_no_checkpoint_from_before(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 2)
    before = files(federation)

    forget_client(federation, "p1")

    (left,) = files(federation)
    assert left not in before
    assert '"p1"' not in federation.store.get(left).decode()
    assert Federation.open(url).state() == fold(federation.journal.reread())


def test_a_forgetting_that_was_killed_after_its_entry_leaves_no_old_checkpoint(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet(url, tmp_path)
    monkeypatch.setattr("clma.forget.carry_out", refuse_with(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        forget_client(federation, "p1")

    assert [int(key[12:20]) for key in files(federation)] == [2]


def test_what_was_rewritten_is_known_from_a_later_checkpoint(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = make_fleet(url, tmp_path)
    drop(federation, "p1")
    close_round(federation, now=NOW, force=True)
    forget_client(federation, "p1")
    pass_rounds(federation, 5)

    with counted_entries(monkeypatch) as read:
        replaced = Federation.open(url).replaced_artifacts()

    assert replaced == federation.replaced_artifacts() != {}
    assert len(read) == 2


def test_states_of_the_past_come_from_the_entries(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 4)
    entries = federation.journal.reread()
    reader = Federation.open(url)

    for number in (8, 3, 5, 0, len(entries) - 1):
        assert reader.journal.state_after(number) == fold(entries[: number + 1])


def test_an_old_entry_that_was_changed_is_found_when_it_is_read(url: str, tmp_path: Path) -> None:
    federation = make_fleet(url, tmp_path)
    pass_rounds(federation, 4)
    key = f"{LEDGER_PREFIX}/00000002.json"
    values = json.loads(federation.store.get(key))
    values["payload"]["reason"] = "forged"
    federation.store.replace(
        key, json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    )
    reader = Federation.open(url)
    assert reader.state() == federation.state()

    with pytest.raises(DamagedStoreError, match=r"00000003\.json follows an entry"):
        reader.journal.state_after(2)


def test_a_checkpoint_reads_back_as_it_was_written(store: Store, tmp_path: Path) -> None:
    federation = make_fleet(tmp_path / "fleet", tmp_path)
    checkpoint = Checkpoint(9, federation.state(), {1: 3}, {7: "ab" * 32})
    entry = dataclasses.replace(federation.journal.newest_entry(), number=9)

    ref = Checkpoints(store).write(checkpoint)

    named = dataclasses.replace(entry, payload={"checkpoint": dataclasses.asdict(ref)})
    assert Checkpoints(store).read(named, "") == checkpoint


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"number":1,"state":[]}'])
def test_a_file_that_is_no_checkpoint_is_passed_over(store: Store, text: bytes) -> None:
    entry = Chain(store).append(EntryKind.ROUND_HELD, {}, expected_number=0)
    ref = Checkpoints(store).write(Checkpoint(0, FederationState("f")))
    damaged = store.replace(ref.path, text)
    named = dataclasses.replace(entry, payload={"checkpoint": dataclasses.asdict(damaged)})

    assert Checkpoints(store).read(named, "") is None
