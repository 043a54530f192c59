"""Named arrays from a model file and back, for any framework.

Examples
--------
>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "m.safetensors"
>>> write_parameters(path, {"w": np.ones(2, np.float32)})
>>> read_parameters(path)
{'w': array([1., 1.], dtype=float32)}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.ledger.durable_file import replace_files
from clma.ledger.refusals import refusals_named
from clma.parameters.tensor_file import TensorFile, serialize_tensors

__all__ = ["read_parameters", "write_parameters"]


def read_parameters(path: Path) -> dict[str, NDArray[Any]]:
    """Read a model file into memory.

    Returns
    -------
    dict of name to ndarray
        Copies, free to be changed; bfloat16 comes as float32, which holds every bfloat16 exactly.

    Raises
    ------
    TensorFileError
        If it is no safetensors file.
    StorageError
        If it cannot be read.
    """
    with refusals_named("read", path.name, str(path.parent)), TensorFile(path) as file:
        return {spec.name: np.array(file.read(spec.name)) for spec in file.specs}


def write_parameters(
    path: Path, parameters: Mapping[str, NDArray[Any]], *, like: Path | None = None
) -> None:
    """Write arrays as a model file; it is replaced at once or not at all.

    Parameters
    ----------
    path : Path
    parameters : mapping of name to ndarray
        Not modified.
    like : Path, optional
        The model that was pulled. Its names and shapes are wanted, its dtypes are written: an
        update in others would be refused. Default: the arrays' own dtypes.

    Raises
    ------
    ShapeMismatchError
        If names or shapes are not those of `like`.
    TensorFileError
        If a dtype cannot be written, or `like` is no safetensors file.
    StorageError
        If the disk refuses.
    """
    specs = None
    if like is not None:
        with refusals_named("read", like.name, str(like.parent)), TensorFile(like) as file:
            specs = file.specs
    data = serialize_tensors({n: np.asarray(values) for n, values in parameters.items()}, specs)
    with refusals_named("written", path.name, str(path.parent), len(data)):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_files({path: data})
