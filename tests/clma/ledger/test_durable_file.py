from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clma.errors import StorageError
from clma.ledger.durable_file import DurableFolders, replace_files, write_draft
from clma.ledger.local_disk import LocalDisk
from tests.clma.ledger.refusing import refuse


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))

    draft = write_draft(tmp_path / "a", b"0123456789")

    assert draft.read_bytes() == b"0123456789"


def test_a_disk_that_takes_no_byte_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda *_: 0)

    with pytest.raises(StorageError, match="a cannot be written"):
        LocalDisk(tmp_path).create("a", b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["write", "fsync", "close"])
def test_nothing_is_left_of_a_failed_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(os, call, refuse(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        write_draft(tmp_path / "a", b"1")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_sync_is_not_asked_again_of_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time, a system that dropped the bytes would say that all is well."""
    synced: list[int] = []
    fsync = os.fsync

    def fail_once(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        if len(synced) == 1:
            raise OSError(errno.EIO, "dropped")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(OSError, match="dropped"):
        write_draft(tmp_path / "a", b"1")
    write_draft(tmp_path / "a", b"1")

    assert len(synced) == 2
    assert not (tmp_path / "a").exists()


def test_a_full_disk_changes_none_of_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {tmp_path / name: name.encode() for name in ("a", "b")}
    replace_files(dict.fromkeys(files, b"old"))
    write, full = os.write, refuse(errno.ENOSPC)
    monkeypatch.setattr(os, "write", lambda fd, data: full() if data == b"b" else write(fd, data))

    with pytest.raises(OSError, match="No space"):
        replace_files(files)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a": b"old",
        "b": b"old",
    }


def test_folders_of_a_stopped_writer_are_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a folder is there does not mean that its name outlasts a power cut."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse(errno.EIO))
        with pytest.raises(OSError, match="error"):
            DurableFolders(tmp_path).make(tmp_path / "a/b")
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))

    DurableFolders(tmp_path).make(tmp_path / "a/b")

    assert {tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino} <= synced


def test_folders_are_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = DurableFolders(tmp_path)
    folders.make(tmp_path / "a")
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))

    folders.make(tmp_path / "a")


def test_a_disk_without_hard_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))

    with pytest.raises(StorageError, match="hard links"):
        LocalDisk(tmp_path).create("a", b"1")
    assert list(tmp_path.iterdir()) == []
