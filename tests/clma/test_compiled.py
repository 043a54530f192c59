from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from clma.compiled import compile_function, is_numba_installed
from clma.errors import MissingExtraError

needs_numba = pytest.mark.skipif(not is_numba_installed(), reason="numba is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, in which nothing may appear."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield home
    assert list(home.iterdir()) == []


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A function in a file of its own."""
    path = tmp_path / "source" / "kernel.py"
    path.parent.mkdir()
    path.write_text("def double(x):\n    return 2 * x\n")
    return path


def double(source: Path) -> Callable[..., Any]:
    """Compile the function as a new process would."""
    spec = spec_from_file_location("kernel", source)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return compile_function(module.double, 1)


def kept(source: Path, suffix: str) -> list[Path]:
    return list(source.parent.rglob(f"*{suffix}"))


@needs_numba
def test_code_is_kept_beside_the_source_and_read_again(source: Path) -> None:
    assert double(source)(21) == 42
    assert {path.parent.name for path in kept(source, ".nb?")} == {"__pycache__"}
    again: list[Any] = [double(source) for _ in range(6)]
    assert [f(21) for f in again] == [42] * 6
    # Now and then numba compiles once more what it has kept.
    assert sum(sum(f.stats.cache_hits.values()) for f in again) > 0


@needs_numba
def test_nothing_is_kept_where_python_may_keep_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert double(source)(21) == 42
    assert kept(source, ".nb?") == []


@needs_numba
def test_home_stays_empty_where_nothing_can_be_kept_beside_the_source(source: Path) -> None:
    """A file in the place of the folder: it stops root, too."""
    (source.parent / "__pycache__").write_text("")
    assert double(source)(21) == 42


@needs_numba
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_damaged_code_is_compiled_again(suffix: str, source: Path) -> None:
    double(source)
    (path,) = kept(source, suffix)
    path.write_bytes(path.read_bytes()[:20])
    assert double(source)(21) == 42


@needs_numba
def test_full_disk_is_no_reason_to_stop(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba.core.caching

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    assert double(source)(21) == 42


def test_without_numba_the_extra_is_named(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtraError, match=r"install clma\[fast\]"):
        double(source)
