"""A disk that fails on demand: the calls of the operating system below a folder, counted.

Calls are replaced in `os` and `io` themselves, so whoever makes them is seen. Syncs are counted and
not done: what would be lost in a power cut is kept in `volatile` instead.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from clma.client import patience
from clma.ledger.keys import HEAD_KEY, LEDGER_PREFIX

REFUSED_TO_WRITE = ("ENOSPC", "EDQUOT", "EIO", "EACCES", "EROFS")

FAULTS: Mapping[str, tuple[str, ...]] = {
    "create": (*REFUSED_TO_WRITE, "EMFILE"),
    "write": ("ENOSPC", "EDQUOT", "EIO", "EFBIG", "short"),
    "sync": ("EIO", "ENOSPC", "EDQUOT"),
    "close": ("EIO", "EDQUOT"),
    "link": (*REFUSED_TO_WRITE, "EPERM", "EMLINK", "lost"),
    "replace": (*REFUSED_TO_WRITE, "lost"),
    "unlink": ("EIO", "EACCES", "EROFS"),
    "mkdir": (*REFUSED_TO_WRITE, "lost"),
    "open-folder": ("EIO", "EACCES", "EMFILE"),
    "sync-folder": ("EIO",),
    # Without EACCES: what a plant made unreadable costs its vote, and that is no fault of the disk.
    "read": ("EIO", "EMFILE"),
    "list": ("EIO", "EMFILE"),
}
"""What may come of each call. ``short``: half is written; ``lost``: it is done, and then EIO."""

LASTING = ("ENOSPC", "EIO", "EROFS")
"""What stays once it is there: a full disk, a dead one, one that became read-only."""

_os = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
_io_open = io.open


@dataclass(frozen=True, slots=True)
class Fault:
    """Call `at` (the first is 0) meets a fault; so do all after it, if it is `lasting`."""

    name: str
    at: int
    lasting: bool = False

    def hits(self, number: int, kind: str) -> bool:
        if self.lasting:
            return number >= self.at and self.name in FAULTS[kind]
        return number == self.at


class FaultyDisk:
    """Replaces the calls while it is entered.

    Parameters
    ----------
    root : Path
        Only what lies below it is counted.
    fault : Fault, optional
        Default: none; the calls are counted all the same.
    """

    def __init__(self, root: Path, fault: Fault | None = None) -> None:
        self.calls: list[tuple[str, Path]] = []
        self.volatile: set[Path] = set()
        self.violations: list[str] = []
        self.n_injected = 0
        self._root = root
        self._fault = fault
        self._opened: dict[int, tuple[str, Path]] = {}
        self._synced: set[Path] = set()
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> FaultyDisk:
        calls = ("open", "write", "fsync", "close", "link", "replace", "unlink", "mkdir", "scandir")
        for name in calls:
            patch = mock.patch.object(os, name, getattr(self, f"_{name}"))
            self._patches.enter_context(patch)
        for module in (io, builtins):
            self._patches.enter_context(mock.patch.object(module, "open", self._open_file))
        # A plant asks a disk again that did not answer; here nothing changes meanwhile.
        self._patches.enter_context(mock.patch.object(patience, "PAUSE_S", 0.0))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _meet(self, kind: str, path: Path) -> str | None:
        number = len(self.calls)
        self.calls.append((kind, path))
        fault = self._fault
        if fault is None or not fault.hits(number, kind):
            return None
        self.n_injected += 1
        if fault.name in {"short", "lost"}:
            return fault.name
        raise _error(fault.name)

    def _mine(self, path: object) -> Path | None:
        if not isinstance(path, str | os.PathLike):
            return None
        full = Path(os.fspath(path)).absolute()
        return full if full.is_relative_to(self._root) else None

    def _open(self, path: Any, flags: int, *args: Any, **options: Any) -> int:
        mine = self._mine(path)
        if mine is None:
            return int(_os["open"](path, flags, *args, **options))
        kind = "create" if flags & os.O_CREAT else "open-folder" if mine.is_dir() else "read"
        self._meet(kind, mine)
        descriptor = int(_os["open"](path, flags, *args, **options))
        self._opened[descriptor] = (kind, mine)
        return descriptor

    def _open_file(self, path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        mine = self._mine(path)
        if mine is not None:
            if mode.startswith("r"):
                self._meet("read", mine)
            else:
                self.violations.append(f"{mine.name} is written where short writes are not seen")
        return _io_open(path, mode, *args, **options)

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor in self._opened:
            fault = self._meet("write", self._opened[descriptor][1])
            data = data[: (len(data) + 1) // 2] if fault == "short" else data
        return int(_os["write"](descriptor, data))

    def _fsync(self, descriptor: int) -> None:
        kind, path = self._opened.get(descriptor, ("", Path()))
        if kind == "open-folder":
            self._meet("sync-folder", path)
            self.volatile = {name for name in self.volatile if name.parent != path}
        elif kind:
            self._meet("sync", path)
            self._synced.add(path)

    def _close(self, descriptor: int) -> None:
        kind, path = self._opened.pop(descriptor, ("", Path()))
        _os["close"](descriptor)
        if kind == "create":
            self._meet("close", path)

    def _named(self, kind: str, path: Any, do: Callable[[], None]) -> None:
        mine = self._mine(path)
        if mine is None:
            do()
            return
        fault = self._meet(kind, mine)
        do()
        (self.volatile.discard if kind == "unlink" else self.volatile.add)(mine)
        if fault == "lost":
            raise _error("EIO")

    def _link(self, source: Any, path: Any, **options: Any) -> None:
        self._check_synced(source, path)
        self._named("link", path, lambda: _os["link"](source, path, **options))

    def _replace(self, source: Any, path: Any, **options: Any) -> None:
        self._check_synced(source, path)
        self._named("replace", path, lambda: _os["replace"](source, path, **options))

    def _unlink(self, path: Any, **options: Any) -> None:
        self._named("unlink", path, lambda: _os["unlink"](path, **options))

    def _mkdir(self, path: Any, *args: Any, **options: Any) -> None:
        self._named("mkdir", path, lambda: _os["mkdir"](path, *args, **options))

    def _scandir(self, path: Any = ".") -> Any:
        mine = self._mine(path)
        if mine is not None:
            self._meet("list", mine)
        return _os["scandir"](path)

    def _check_synced(self, source: Any, path: Any) -> None:
        mine = self._mine(path)
        if mine is None:
            return
        if self._mine(source) not in self._synced:
            self.violations.append(f"{mine.name} got its name before its bytes were on the disk")
        if mine.parent.name == LEDGER_PREFIX:
            # The head may lag; it is brought forward.
            volatile = (name for name in self.volatile if name.name != HEAD_KEY)
            early = [name for name in volatile if name.parent.name != LEDGER_PREFIX]
            self.violations += [
                f"{mine.name} stands on {name.name}, not on the disk" for name in early
            ]


def _error(name: str) -> OSError:
    code = getattr(errno, name)
    return OSError(code, os.strerror(code))
