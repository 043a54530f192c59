"""A shard's sums and votes as files, for the steps that put them together.

Examples
--------
>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "sums.safetensors"
>>> _ = path.write_bytes(write_sums(ShardSums(np.ones((1, 3)), units=())))
>>> read_sums(path).norm_squares
array([[1., 1., 1.]])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.sweep.inner_products import InnerProducts
from clma.sweep.shard import ShardSums, UnitSums
from clma.sweep.votes import Votes

__all__ = ["read_sums", "read_votes", "write_sums", "write_votes"]


def write_sums(sums: ShardSums) -> bytes:
    """Write a shard's sums as a safetensors file; equal sums give equal bytes."""
    arrays: dict[str, NDArray[Any]] = {"norm_squares": sums.norm_squares}
    for number, unit in enumerate(sums.units):
        stacks = {
            "gram": [p.gram for p in unit.products],
            "layer_squares": [p.layer_squares for p in unit.products],
            "sums": [p.sums for p in unit.products],
            "sketches": [p.sketches for p in unit.products],
            "output_gram": [p.output_gram for p in unit.products],
            "output_sketches": [p.output_sketches for p in unit.products],
            "raw": unit.raw_grams,
            "ks": [unit.ks_statistics],
        }
        arrays |= {f"{number}.{name}": _stacked(stack) for name, stack in stacks.items()}
    return serialize_tensors(arrays)


def read_sums(path: Path) -> ShardSums:
    """Read what `write_sums` wrote.

    Raises
    ------
    TensorFileError
        If the file is none.
    """
    with TensorFile(path, mapped=False) as file:
        n_units = sum(spec.name.endswith(".ks") for spec in file.specs)
        units = tuple(_read_unit(file, number) for number in range(n_units))
        return ShardSums(file.read("norm_squares"), units)


def write_votes(votes: Votes) -> bytes:
    """Write what votes tell beside their columns as a safetensors file."""
    return serialize_tensors({"norm_squares": votes.norm_squares, "grams": _stacked(votes.grams)})


def read_votes(path: Path, columns: NDArray[np.uint8]) -> Votes:
    """Read what `write_votes` wrote, and add the columns.

    Raises
    ------
    TensorFileError
        If the file is none.
    """
    with TensorFile(path, mapped=False) as file:
        return Votes(columns, file.read("norm_squares"), tuple(file.read("grams")))


def _read_unit(file: TensorFile, number: int) -> UnitSums:
    names = [field.name for field in dataclasses.fields(InnerProducts)]
    products = tuple(map(InnerProducts, *(file.read(f"{number}.{name}") for name in names)))
    raw, statistics = (file.read(f"{number}.{name}") for name in ("raw", "ks"))
    return UnitSums(products, tuple(raw), statistics[0])


def _stacked(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.stack(arrays) if arrays else np.zeros((0, 0))
