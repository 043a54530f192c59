from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest
from obstore.exceptions import GenericError

from clma.errors import (
    ClmaError,
    ConflictError,
    DamagedStoreError,
    MissingObjectError,
    StorageError,
)
from clma.ledger.drafts import draft_name
from clma.ledger.local_disk import LocalDisk
from clma.ledger.store import Store
from clma.records import ArtifactRef
from tests.clma.ledger.refusing import refuse, refuse_with


def test_what_was_put_is_there_for_the_next_who_opens(url: str) -> None:
    ref = Store.open(url).put_if_absent("a/b.bin", b"1")

    assert Store.open(url).get_verified(ref) == b"1"


def test_a_file_url_is_the_folder(tmp_path: Path) -> None:
    Store.open((tmp_path / "s p").as_uri()).put_once("a", b"1")

    assert (tmp_path / "s p" / "a").read_bytes() == b"1"


def test_opening_makes_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "typo")

    assert store.list() == ()
    assert not store.exists("a")
    assert not (tmp_path / "typo").exists()


def test_an_unknown_scheme_is_one_clear_error() -> None:
    with pytest.raises(ClmaError, match="cannot be opened"):
        Store.open("gopher://host/x")


def test_put_if_absent_refuses_a_second_object_even_if_equal(store: Store) -> None:
    store.put_if_absent("a", b"1")

    with pytest.raises(ConflictError, match="already there"):
        store.put_if_absent("a", b"1")
    assert store.get("a") == b"1"


def test_put_once_takes_equal_bytes_again_and_no_others(store: Store) -> None:
    assert store.put_once("a", b"1") == store.put_once("a", b"1")

    with pytest.raises(ConflictError, match="other bytes"):
        store.put_once("a", b"2")
    assert store.get("a") == b"1"


def test_replace_replaces(store: Store) -> None:
    store.replace("a", b"1")
    store.replace("a", b"2")

    assert store.get("a") == b"2"


def test_list_is_sorted_and_below_the_folder_only(store: Store) -> None:
    for key in ("x/b", "x/a/c", "xy/d", "e"):
        store.put_once(key, b"")

    assert store.list("x") == ("x/a/c", "x/b")
    assert store.list() == ("e", "x/a/c", "x/b", "xy/d")


def test_a_missing_object_is_named(store: Store) -> None:
    for look in (store.get, store.info, store.local_path):
        with pytest.raises(MissingObjectError, match="models/x"):
            look("models/x")


def test_changed_bytes_are_found(store: Store) -> None:
    ref = store.put_once("a", b"1")
    store.replace("a", b"2")

    with pytest.raises(DamagedStoreError, match="recorded"):
        store.get_verified(ref)
    with pytest.raises(DamagedStoreError, match="recorded"):
        store.verified_path(ArtifactRef("a", ref.sha256))


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a//b", "a/", "../a", "a/../b", ".", ".hidden", "a\\b", "a\nb", "a\0", "x" * 200],
)
def test_a_name_never_leaves_the_folder(store: Store, key: str) -> None:
    for use in (store.get, store.exists, lambda k: store.put_once(k, b"")):
        with pytest.raises(ValueError, match="is not a key"):
            use(key)


def test_local_path_has_the_bytes(store: Store) -> None:
    store.put_once("m/a.bin", b"12")

    assert store.local_path("m/a.bin").read_bytes() == b"12"


def test_a_download_is_kept_until_close() -> None:
    store = Store.open("memory://download")
    store.replace("a", b"1")
    path = store.local_path("a")

    assert store.local_path("a") == path
    store.close()
    assert not path.exists()


def test_of_many_writers_exactly_one_wins(store: Store) -> None:
    def attempt(writer: int) -> int | None:
        try:
            store.put_if_absent("a/b/c", str(writer).encode())
        except ConflictError:
            return None
        return writer

    with ThreadPoolExecutor(8) as pool:
        winners = [w for w in pool.map(attempt, range(40)) if w is not None]

    assert len(winners) == 1
    assert store.get("a/b/c") == str(winners[0]).encode()


def test_links_are_listed_but_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "deep").mkdir(parents=True)
    (secret / "file").write_bytes(b"secret")
    store = Store.open(tmp_path / "store")
    store.put_once("in/a", b"1")
    (tmp_path / "store/in/link").symlink_to(secret / "file")
    (tmp_path / "store/in/folder").symlink_to(secret)

    assert store.list("in") == ("in/a", "in/folder", "in/link")
    for key in ("in/link", "in/folder/file"):
        with pytest.raises(DamagedStoreError, match="link"):
            store.get(key)
    with pytest.raises(DamagedStoreError, match="link"):
        store.put_once("in/folder/new", b"")
    assert not (secret / "new").exists()


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(DamagedStoreError, match="not a plain file"):
        store.get("pipe")


def test_odd_names_do_not_break_the_listing(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (tmp_path / "a\nb").write_bytes(b"")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")  # noqa: PTH102
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/x")).write_bytes(b"")

    assert len(store.list()) == 2


def test_folders_are_looked_into_so_deep_and_no_deeper(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.put_once("a", b"1")
    (tmp_path / "/".join("d" * 30)).mkdir(parents=True)

    assert store.list() == ("a", "/".join("d" * 9))


def test_hidden_files_are_no_objects(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.put_once("a", b"1")
    (tmp_path / ".git/x").mkdir(parents=True)
    (tmp_path / ".DS_Store").touch()

    assert store.list() == ("a",)


def test_drafts_of_killed_writers_are_hidden_and_swept(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.put_once("m/a", b"1")
    (tmp_path / "m/.a.123.tmp").write_bytes(b"half")

    assert store.list() == ("m/a",)
    assert store.sweep("m") == 0
    assert store.sweep("m", older_than_s=-60) == 1
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["a"]


def test_draft_of_a_dead_process_is_swept_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(os, "getpid", lambda: ended.pid)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / draft_name("a")).write_bytes(b"half")

    assert Store.open(tmp_path).sweep("m") == 1


def test_draft_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / draft_name("a")).write_bytes(b"half")

    assert Store.open(tmp_path).sweep("m") == 0


def test_draft_from_another_machine_is_left_to_its_age(tmp_path: Path) -> None:
    """There the process with that number may well be alive."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / f".a.{'0' * 12}-4194999-{'0' * 16}.tmp").write_bytes(b"half")

    assert Store.open(tmp_path).sweep("m") == 0


def test_bytes_are_synced_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must never leave a named file without content."""
    steps: list[str] = []
    link = os.link
    monkeypatch.setattr(os, "fsync", lambda _: steps.append("sync"))
    monkeypatch.setattr(os, "link", lambda *a: (steps.append("link"), link(*a)))

    LocalDisk(tmp_path).create("a", b"1")

    assert steps[-3:] == ["sync", "link", "sync"]


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(tmp_path).put_once("in/a", b"1")
    monkeypatch.setattr(os, "scandir", refuse(errno.EACCES))

    with pytest.raises(StorageError, match=r"in cannot be listed in .* permission denied"):
        Store.open(tmp_path).list("in")


def test_what_a_server_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open("memory://refused")
    monkeypatch.setattr(store._objects, "_store", Away())

    for use in (store.get, store.info, store.list, lambda key: store.put_once(key, b"1")):
        with pytest.raises(StorageError, match=r"^a cannot be \w+ in memory://refused: 503; check"):
            use("a")


class Away:
    """A server that answers nothing but 503, with a page of details."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return refuse_with(GenericError("503\n\nDebug source: a page"))


@pytest.mark.parametrize("seconds", [10**12, -(10**12), 2**62])
def test_a_time_that_no_calendar_has_is_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Some file systems keep what the file's owner set, so the tests cannot set it everywhere."""
    disk = LocalDisk(tmp_path)
    disk.create("a", b"x")
    status = tuple((tmp_path / "a").stat())[:10]
    odd = os.stat_result((*status[:8], seconds, status[9]))
    monkeypatch.setattr(os, "fstat", lambda _: odd)

    assert disk.info("a").modified.year == 1970


def test_a_folder_that_vanishes_while_it_is_listed_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(tmp_path)
    disk.create("inbox/a/x", b"")
    disk.create("inbox/b/x", b"")
    scan = os.scandir

    def scan_all_but_a(folder: Path | str) -> object:
        if Path(folder).name == "a":
            raise FileNotFoundError(folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scan_all_but_a)
    assert list(disk.names("inbox")) == ["inbox/b/x"]


def test_a_folder_that_is_named_like_a_draft_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "1/2/3/4/5/6/7/8/9/.x.tmp"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))

    assert Store.open(tmp_path).sweep("1", older_than_s=1.0) == 0


def test_deleting_is_done_once_and_harmless_twice(store: Store) -> None:
    store.put_once("a", b"1")

    for _ in range(2):
        store.delete("a")

    assert not store.exists("a")


@pytest.mark.parametrize("start", [0, 3, 10])
def test_stream_begins_where_it_is_told(store: Store, start: int) -> None:
    store.put_once("a/b", b"0123456789")
    assert b"".join(store.stream("a/b", start=start)) == b"0123456789"[start:]


def test_stream_of_nothing_is_a_missing_object(store: Store) -> None:
    with pytest.raises(MissingObjectError):
        list(store.stream("a/b"))


def test_gateway_is_no_store() -> None:
    with pytest.raises(ClmaError, match="only 'clma client' commands"):
        Store.open("https://gateway.example/")
