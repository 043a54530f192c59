"""A client's id in text, and Prefect's feed of events without it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows._mentions import drop_events, mention_of


@pytest.mark.parametrize("text", ["p-1", "p-1: c0 -> c1", 'of "p-1".', "by p-1, p-2", "(p-1)"])
def test_an_id_is_found_in_a_sentence(text: str) -> None:
    assert re.search(mention_of("p-1"), text)


@pytest.mark.parametrize("text", ["p-11", "xp-1", "a-p-1", "p-1.b", "b.p-1", "p-1_2"])
def test_an_id_is_not_found_in_a_longer_one(text: str) -> None:
    assert not re.search(mention_of("p-1"), text)


def feed(path: Path, *payloads: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE events (id TEXT, payload TEXT)")
        database.execute("CREATE TABLE event_resources (event_id TEXT, resource TEXT)")
        rows = list(enumerate(payloads))
        database.executemany("INSERT INTO events VALUES (?, ?)", rows)
        database.executemany("INSERT INTO event_resources VALUES (?, ?)", rows)
        database.commit()
    return path


def test_events_of_others_stay(tmp_path: Path) -> None:
    path = feed(tmp_path / "prefect.db", "p-1 moved", "p-11 moved")

    assert drop_events(path, "p-1") is None

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT payload FROM events").fetchall() == [("p-11 moved",)]
    assert b"p-1 moved" not in path.read_bytes()


def test_a_database_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "prefect.db").write_bytes(b"no database" * 100)

    line = drop_events(tmp_path / "prefect.db", "p-1")

    assert line is not None
    assert "was not cleaned (file is not a database)" in line


def test_no_database_is_nothing_to_clean(tmp_path: Path) -> None:
    assert drop_events(tmp_path / "prefect.db", "p-1") is None
    assert list(tmp_path.iterdir()) == []
