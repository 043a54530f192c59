from __future__ import annotations

import errno
import os

import pytest

from clma.errors import ClmaError, ConflictError, StorageError
from clma.ledger.refusals import readable_size, refusals_named


def message(code: int, done: str = "written", size_bytes: int = 0) -> str:
    with pytest.raises(StorageError) as caught, refusals_named(done, "a/b", "/s", size_bytes):
        raise OSError(code, os.strerror(code))
    assert caught.value.errno == code
    return str(caught.value)


def test_a_full_disk_says_how_much_to_free() -> None:
    text = message(errno.ENOSPC, size_bytes=4_000_000)

    assert text.startswith("a/b cannot be written in /s: no space is left on the disk (ENOSPC); ")
    assert "free at least 4.0 MB" in text


def test_a_denied_permission_says_which_right_is_missing() -> None:
    assert "the right to write there" in message(errno.EACCES)
    assert "the right to read there" in message(errno.EACCES, "read")


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_every_error_number_gives_one_line_with_its_name(code: int) -> None:
    text = message(code)

    assert "\n" not in text
    assert f"({errno.errorcode[code]}); " in text


def test_an_error_without_a_number_keeps_its_text() -> None:
    with pytest.raises(StorageError, match="cut off"), refusals_named("read", "a", "/s"):
        raise TimeoutError("cut off")


def test_a_refusal_is_named_once() -> None:
    inner = StorageError("inner cannot be read", errno.EIO)

    with pytest.raises(StorageError) as caught, refusals_named("read", "outer", "/s"):
        raise inner

    assert caught.value is inner


def test_what_is_not_of_the_disk_passes() -> None:
    with pytest.raises(ConflictError, match="first"), refusals_named("read", "a", "/s"):
        raise ConflictError("first")


def test_old_handlers_of_either_kind_take_it() -> None:
    assert issubclass(StorageError, ClmaError)
    assert issubclass(StorageError, OSError)


def test_sizes_are_read_by_people() -> None:
    sizes = [readable_size(n) for n in (0, 999, 4096, 2_100_000, 3 * 10**9, 2 * 10**13)]

    assert sizes == ["0 bytes", "999 bytes", "4.1 kB", "2.1 MB", "3.0 GB", "20.0 TB"]
