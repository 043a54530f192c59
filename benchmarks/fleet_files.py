"""Fleets on disk: a reference model, and clients that drifted one of two ways or not at all.

NumPy only, without this project's own reader and writer: what is compared with the result of a
benchmark must not come from what is measured.

Weights of the reference have a standard deviation of 0.05, the two drifts one of 0.01 and the noise
of every client one of 0.005, so that the KS statistic is about 0.006: small, as after a day of
training. Client i is the same in every fleet of one model size, so that fleets share files.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Fleet",
    "FleetSize",
    "NoRoomError",
    "delete_fleets",
    "flat",
    "make_fleet",
    "parse_size",
    "read_tensors",
]

N_LAYERS = 8
N_FAMILIES = 2
REFERENCE_SD, DRIFT_SD, NOISE_SD = 0.05, 0.01, 0.005
_CHUNK = 1 << 22
"""Values made at a time."""

_SIZE = re.compile(r"(?P<n>[0-9.e+]+)x(?P<p>[0-9.e+]+)(?::(?P<share>[0-9.]+)%)?")


class NoRoomError(Exception):
    """The disk has no room for a fleet's files."""


@dataclass(frozen=True, slots=True)
class FleetSize:
    """How many clients of how many parameters, and how many of them drifted.

    Parameters
    ----------
    n_clients, n_parameters : int >= 1
    n_drifted : int in [1, n_clients]
    """

    n_clients: int
    n_parameters: int
    n_drifted: int

    def __str__(self) -> str:
        share = "" if self.n_drifted == self.n_clients else f":{self.drifted_percent:g}%"
        return f"{self.n_clients}x{self.n_parameters}{share}"

    @property
    def drifted_percent(self) -> float:
        """Share of the clients that drifted, in (0, 100]."""
        return 100 * self.n_drifted / self.n_clients

    @property
    def model_bytes(self) -> int:
        """Size of one model's tensors."""
        return 4 * self.n_parameters


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet's files.

    Parameters
    ----------
    size : FleetSize
    reference : Path
    drifted, quiet : tuple of Path
        Drifted client i belongs to family i % 2.
    """

    size: FleetSize
    reference: Path
    drifted: tuple[Path, ...]
    quiet: tuple[Path, ...]

    @property
    def weights(self) -> tuple[int, ...]:
        """Example counts, drifted clients first."""
        return tuple(100 + 10 * (i % 7) for i in range(self.size.n_clients))

    @property
    def families(self) -> tuple[int, ...]:
        """True family of every drifted client."""
        return tuple(i % N_FAMILIES for i in range(len(self.drifted)))


def parse_size(text: str) -> FleetSize:
    """Read ``10x545290``, ``50x1e6`` or, one in ten drifted, ``1000x1e6:10%``.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    match = _SIZE.fullmatch(text)
    try:
        n, p = (int(float(part)) for part in match.group("n", "p")) if match else (0, 0)
        share = float(match["share"] or 100) / 100 if match else 0.0
    except (OverflowError, ValueError):
        n, p, share = 0, 0, 0.0
    n_drifted = round(n * share)
    if n_drifted < 1 or share > 1 or p < N_LAYERS:
        raise ValueError(
            f"size {text!r}, wanted CLIENTSxPARAMETERS[:DRIFTED%], at least 1 client that drifted "
            f"and {N_LAYERS} parameters"
        )
    return FleetSize(n, p, n_drifted)


def layer_sizes(n_parameters: int) -> Mapping[str, int]:
    """Deal parameters to layers that grow; the largest has less than a fourth of a big model."""
    unit = n_parameters // (N_LAYERS * (N_LAYERS + 1) // 2)
    sizes = {f"layer{k}.weight": max(unit * k, 1) for k in range(1, N_LAYERS)}
    return sizes | {f"layer{N_LAYERS}.weight": n_parameters - sum(sizes.values())}


def make_fleet(size: FleetSize, root: Path, *, seed: int = 0, progress: bool = False) -> Fleet:
    """Write what is missing of a fleet's files.

    Parameters
    ----------
    size : FleetSize
    root : Path
        Made if it is not there.
    seed : int >= 0
    progress : bool
        Tell on standard error how far it is.

    Raises
    ------
    NoRoomError
        If they would not leave a tenth of the free space.
    """
    folder = root / f"p{size.n_parameters}-seed{seed}"
    quiet = size.n_clients - size.n_drifted
    fleet = Fleet(
        size,
        folder / "reference.safetensors",
        tuple(folder / f"drifted-{i:04}.safetensors" for i in range(size.n_drifted)),
        tuple(folder / f"quiet-{i:04}.safetensors" for i in range(quiet)),
    )
    sources = _sources(folder)
    missing = [p for p in (*sources, *fleet.drifted, *fleet.quiet) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    _check_room(size, len(missing), folder)
    for number, path in enumerate(missing, start=1):
        _write_model(path, size.n_parameters, seed)
        if progress:
            _tell(f"{size}: {number} of {len(missing)} files written", last=number == len(missing))
    return fleet


def delete_fleets(root: Path) -> None:
    """Delete the files of all fleets in a folder, and nothing else that may lie there."""
    for folder in root.glob("p*-seed*"):
        for path in (*folder.glob("*.safetensors"), *folder.glob("*.draft")):
            path.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def _sources(folder: Path) -> tuple[Path, ...]:
    """Return the files that the clients' are made from: the reference first, they are few."""
    return (
        folder / "reference.safetensors",
        *(folder / f"drift-{family}.safetensors" for family in range(N_FAMILIES)),
    )


def _check_room(size: FleetSize, n_files: int, folder: Path) -> None:
    needed, free = n_files * size.model_bytes, shutil.disk_usage(folder).free
    if needed > 0.9 * free:
        raise NoRoomError(
            f"{size}: {needed / 1e9:.1f} GB of files to write, {free / 1e9:.1f} GB are free"
        )


def _write_model(path: Path, n_parameters: int, seed: int) -> None:
    """Write one file under another name first, so that what is there is whole."""
    kind, _, number = path.stem.partition("-")
    rng = np.random.default_rng([seed, n_parameters, zlib.crc32(path.stem.encode())])
    reference, *drifts = _sources(path.parent)
    parents = {
        "reference": [],
        "drift": [],
        "drifted": [reference, drifts[int(number or 0) % N_FAMILIES]],
        "quiet": [reference],
    }[kind]
    sd = {"reference": REFERENCE_SD, "drift": DRIFT_SD}.get(kind, NOISE_SD)
    opened = [flat(parent) for parent in parents]
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        file.write(_header(n_parameters))
        for start in range(0, n_parameters, _CHUNK):
            stop = min(start + _CHUNK, n_parameters)
            values = rng.standard_normal(stop - start, dtype=np.float32) * np.float32(sd)
            for parent in opened:
                values += parent[start:stop]
            file.write(values.tobytes())
        file.flush()
        os.fsync(file.fileno())  # a page that is not on the disk cannot be dropped from memory
    draft.rename(path)


def _header(n_parameters: int) -> bytes:
    entries, position = {}, 0
    for name, n_values in layer_sizes(n_parameters).items():
        stop = position + 4 * n_values
        entries[name] = {
            "dtype": "F32",
            "shape": [n_values],
            "data_offsets": [position, stop],
        }
        position = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def flat(path: Path) -> NDArray[np.float32]:
    """Map one model's parameters, all tensors in the order of the file, shape (n_parameters,)."""
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
    return np.memmap(path, np.float32, mode="r", offset=start)


def read_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read a model into memory, as a server that keeps its clients' arrays holds it."""
    with path.open("rb") as file:
        header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return {
            name: np.fromfile(file, np.float32, math.prod(header[name]["shape"]))
            for name in sorted(header, key=lambda key: header[key]["data_offsets"][0])
        }


def _tell(text: str, *, last: bool) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last:
        print(text, file=sys.stderr)
