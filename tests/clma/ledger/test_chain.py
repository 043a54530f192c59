from __future__ import annotations

import datetime as dt
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from clma.errors import ConflictError, DamagedStoreError
from clma.ledger.chain import Chain, EntryKind, canonical_json
from clma.ledger.keys import HEAD_KEY, entry_key
from clma.ledger.store import Store

HELD = EntryKind.ROUND_HELD


def grown(store: Store, n_entries: int) -> Chain:
    chain = Chain(store)
    for number in range(n_entries):
        chain.append(HELD, {"round": number}, expected_number=number)
    return chain


def test_what_was_appended_is_read_by_another(store: Store) -> None:
    entries = grown(store, 3).read_all()

    assert [e.payload["round"] for e in entries] == [0, 1, 2]
    assert Chain(store).read() == entries


def test_times_are_written_in_utc(store: Store) -> None:
    at = dt.datetime(2026, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))

    entry = Chain(store).append(HELD, {}, expected_number=0, at=at)

    assert entry.at == at
    assert json.loads(store.get(entry_key(0)))["at"] == "2026-01-01T00:00:00+00:00"


def test_a_reader_sees_what_others_append(store: Store) -> None:
    reader = Chain(store)
    writer = grown(store, 1)
    assert len(reader.read()) == 1

    writer.append(HELD, {}, expected_number=1)

    assert len(reader.read()) == 2


def test_an_entry_made_from_an_old_state_is_refused(store: Store) -> None:
    chain, late = grown(store, 1), Chain(store)
    chain.append(HELD, {}, expected_number=1)

    with pytest.raises(ConflictError, match="has 2 entries, expected 1"):
        late.append(HELD, {}, expected_number=1)


def test_of_two_writers_of_one_entry_exactly_one_wins(url: str) -> None:
    grown(Store.open(url), 1)

    def attempt(writer: int) -> bool:
        try:
            Chain(Store.open(url)).append(HELD, {"writer": writer}, expected_number=1)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(24))) == 1
    assert len(Chain(Store.open(url)).read_all()) == 2


def test_a_changed_entry_is_found(store: Store) -> None:
    grown(store, 3)
    values = json.loads(store.get(entry_key(1)))
    store.replace(entry_key(1), canonical_json({**values, "payload": {"round": 9}}))

    with pytest.raises(DamagedStoreError, match=r"00000001\.json .* was changed"):
        Chain(store).read_all()


def test_an_entry_spelt_differently_is_found(store: Store) -> None:
    grown(store, 1)
    store.replace(entry_key(0), store.get(entry_key(0)) + b"\n")

    with pytest.raises(DamagedStoreError, match=r"00000000\.json was changed"):
        Chain(store).read_all()


def test_an_end_that_was_cut_off_is_found(store: Store) -> None:
    grown(store, 3)
    store.delete(entry_key(2))

    with pytest.raises(DamagedStoreError, match=r"00000002\.json is missing, head\.json names it"):
        Chain(store).read()


def test_an_end_that_was_written_anew_is_found(store: Store) -> None:
    grown(store, 3)
    head = store.get(HEAD_KEY)
    store.delete(entry_key(2))
    store.delete(HEAD_KEY)
    Chain(store).append(HELD, {"round": 9}, expected_number=2)
    store.replace(HEAD_KEY, head)

    with pytest.raises(DamagedStoreError, match=r"00000002\.json is not the entry that head"):
        Chain(store).read()


def test_a_head_that_lags_is_brought_forward(store: Store) -> None:
    """As after a crash between an entry and the head."""
    grown(store, 2)
    store.replace(HEAD_KEY, canonical_json({"number": 0, "sha256": Chain(store).digest(0)}))

    Chain(store).append(HELD, {}, expected_number=2)

    head = Chain(store).head()
    assert head is not None
    assert (head.number, head.sha256) == (2, Chain(store).digest(2))


@pytest.mark.parametrize("text", [b"", b"[]", b'{"number":"x","sha256":""}'])
def test_a_head_that_cannot_be_read_is_an_error(store: Store, text: bytes) -> None:
    grown(store, 1)
    store.replace(HEAD_KEY, text)

    with pytest.raises(DamagedStoreError, match=r"head\.json cannot be read"):
        Chain(store).read()


def test_a_redacted_entry_is_followed_where_a_later_one_names_it(store: Store) -> None:
    chain = grown(store, 2)
    digests = [chain.digest(n) for n in range(2)]
    data = chain.redact(0, {"round": "redacted"})
    forgotten = {"redacted": {"0": hashlib.sha256(data).hexdigest()}}
    chain.append(EntryKind.CLIENT_FORGOTTEN, forgotten, expected_number=2)
    chain.replace(0, data)

    read = Chain(store)

    assert read.read_all()[0].payload == {"round": "redacted"}
    assert [read.digest(n) for n in range(2)] == digests


def test_a_redaction_that_no_entry_names_is_found(store: Store) -> None:
    chain = grown(store, 2)
    chain.replace(0, chain.redact(0, {"round": "forged"}))

    with pytest.raises(DamagedStoreError, match=r"00000000\.json was changed"):
        Chain(store).read()


def test_a_lost_entry_is_found(store: Store) -> None:
    grown(store, 1)
    store.put_once(entry_key(2), store.get(entry_key(0)))

    with pytest.raises(DamagedStoreError, match=r"00000001\.json is missing"):
        Chain(store).read()


def test_a_file_that_is_no_entry_is_named(store: Store) -> None:
    store.put_once(entry_key(0), b"{}")

    with pytest.raises(DamagedStoreError, match=r"00000000\.json is not an entry"):
        Chain(store).read()


def test_equal_values_have_equal_bytes() -> None:
    assert canonical_json({"b": 1, "a": [None, "é"]}) == '{"a":[null,"é"],"b":1}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": float("nan")})


def test_reading_back_stops_where_nobody_asks(store: Store) -> None:
    grown(store, 5)
    store.delete(entry_key(1))
    chain = Chain(store)

    assert [e.number for e in islice(chain.newest_first(), 3)] == [4, 3, 2]
    with pytest.raises(DamagedStoreError, match=r"00000001\.json is missing, .*2\.json follows it"):
        chain.entry(1)


@pytest.mark.parametrize("number", [1, 2])
def test_a_redaction_that_no_entry_names_is_found_from_the_end(store: Store, number: int) -> None:
    chain = grown(store, 3)
    chain.replace(number, chain.redact(number, {"round": "forged"}))

    with pytest.raises(DamagedStoreError, match=rf"0000000{number}\.json was changed"):
        Chain(store).entry(1)


def test_without_a_head_the_names_tell_the_end(store: Store) -> None:
    grown(store, 3)
    store.delete(HEAD_KEY)

    assert Chain(store).n_entries() == 3


def test_an_entry_is_picked_by_its_own_digest(store: Store) -> None:
    chain = grown(store, 3)

    assert Chain(store).pick(1, chain.digest(1)) == chain.entry(1)
    with pytest.raises(DamagedStoreError, match=r"00000001\.json was changed"):
        Chain(store).pick(1, chain.digest(2))


def test_the_first_entry_is_known_without_the_others(store: Store) -> None:
    chain = grown(store, 3)
    store.delete(entry_key(1))

    assert Chain(store).identity() == chain.digest(0)
