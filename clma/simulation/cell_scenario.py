"""The fleet of a cell: a scenario that comes with the library, or one of the user's own.

Examples
--------
>>> check_scenario("plant/stagger")
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

from clma.adapters.factory import load_factory
from clma.errors import InvalidConfigError
from clma.ledger.store import file_digest
from clma.simulation.fleet import Fleet
from clma.simulation.scenarios import (
    ALLOWED,
    is_embedded,
    load_scenario,
    recorded_folder,
    scenario_names,
)

__all__ = ["CACHE_VARIABLE", "check_scenario", "data_digest", "load_cell_fleet"]

CACHE_VARIABLE = "CLMA_CACHE_DIR"


def check_scenario(name: str) -> None:
    """Raise InvalidConfigError if there is no such scenario; says which there are."""
    if ":" in name:
        load_factory(name)
    elif (data := name.partition("/")[0]) not in ALLOWED:
        raise InvalidConfigError(
            f"scenario {name!r} is unknown, wanted package.module:factory or <data>/<schedule>, "
            f"plant/stagger say, with data one of {', '.join(ALLOWED)}"
        )
    elif name not in scenario_names():
        raise InvalidConfigError(
            f"scenario {name!r} is unknown, wanted one of "
            f"{', '.join(f'{data}/{schedule}' for schedule in ALLOWED[data])}"
        )


def load_cell_fleet(name: str, seed: int, data_dir: Path | None) -> Fleet:
    """Build the fleet of a scenario.

    Parameters
    ----------
    name : str
        One of `scenario_names`, or ``package.module:factory``. A factory is called with `seed` and
        `data_dir` and returns a `Fleet`.
    seed : int, >= 0
    data_dir : Path or None
        Folder of recorded data.

    Notes
    -----
    Embeddings of images are kept in the folder that ``CLMA_CACHE_DIR`` names, if it names one.

    Raises
    ------
    InvalidConfigError
        If the scenario is unknown, its data are not there, or a factory makes something else.
    """
    if ":" not in name:
        return load_scenario(
            name, seed, data_dir, cache_dir=_cache_folder() if is_embedded(name) else None
        )
    fleet = load_factory(name)(seed, data_dir)
    if not isinstance(fleet, Fleet):
        raise InvalidConfigError(
            f"scenario {name!r} makes a {type(fleet).__name__}, wanted a clma Fleet"
        )
    return fleet


def data_digest(name: str, data_dir: Path | None) -> str:
    """Return a SHA-256 over what a scenario is recorded in; empty if it reads nothing.

    Of a scenario that comes with the library that is its folder in `data_dir`. Of one of the user's
    own it is the whole folder, and the file that the factory is written in.
    """
    files = _own_files(name, data_dir) if ":" in name else _recorded_files(name, data_dir)
    if not files:
        return ""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def _cache_folder() -> Path | None:
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else None


def _recorded_files(name: str, data_dir: Path | None) -> list[Path]:
    folder = recorded_folder(name)
    return [] if data_dir is None or folder is None else _files_below(data_dir / folder)


def _own_files(name: str, data_dir: Path | None) -> list[Path]:
    spec = importlib.util.find_spec(name.partition(":")[0])
    source = [] if spec is None or spec.origin is None else [Path(spec.origin)]
    recorded = [] if data_dir is None or not data_dir.is_dir() else _files_below(data_dir)
    return [p for p in (*source, *recorded) if p.is_file()]


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md"]
