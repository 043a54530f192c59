"""Flower's records to named arrays and back, and the names of what travels in them.

Arrays of a client are bytes from outside: they are read here as what a plain NumPy file may hold,
and nothing is believed that the bytes do not bear out. Everything else (names, shapes, values) is
judged by the gate of the federation.

Examples
--------
>>> record = to_record({"w": np.array([1.0, 2.0], np.float32)})
>>> to_tensors(record)["w"]
array([1., 2.], dtype=float32)
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from tokenize import TokenError
from typing import Any, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from clma.errors import InvalidUpdateError
from clma.ledger.keys import printable
from clma.parameters.tensor_file import NUMPY_DTYPES
from clma.records import TensorSpec
from clma.updates.reasons import Reason

__all__ = [
    "COHORT_KEY",
    "CONFIRM_KEY",
    "DRIFT_KEY",
    "DRIFT_SETTINGS_KEY",
    "LEARNING_RATE_KEY",
    "LOSS_KEY",
    "ORIGIN_KEY",
    "PROXIMAL_KEY",
    "ROUND_KEY",
    "to_record",
    "to_tensors",
]

# The first three are those of fed-clma: its clients can stay as they are.
DRIFT_KEY = "clma-drift"
"""Metric: the drift flag, 0 or 1."""
LOSS_KEY = "clma-loss"
"""Metric: the loss that the flag was raised on."""
COHORT_KEY = "clma-cohort"
"""Setting: number of the client's cohort."""
CONFIRM_KEY = "clma-confirm"
"""Metric: 1 if the model under `ORIGIN_KEY` is still bad on the client's data, else 0."""
ORIGIN_KEY = "clma-origin"
"""Array record: model of the cohort that a client was moved from, to be measured."""
ROUND_KEY = "clma-round"
"""Setting, and metric of a reply: the federation's round; it goes on where Flower's starts anew."""
DRIFT_SETTINGS_KEY = "clma-drift-settings"
"""Setting: how drift is to be looked for, as JSON."""
PROXIMAL_KEY = "proximal-mu"
"""Setting: strength of FedProx' pull, under the name that Flower's strategy gives it."""
LEARNING_RATE_KEY = "clma-learning-rate-factor"
"""Setting: what to multiply the learning rate by."""

_NUMPY_FILE = "numpy.ndarray"
# NumPy reads a header as Python reads a literal, with all that can be wrong with one.
_NOT_READABLE = (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError)


def to_record(
    tensors: Mapping[str, NDArray[Any]], order: Iterable[str] | None = None
) -> ArrayRecord:
    """Return arrays as a record.

    Parameters
    ----------
    tensors : mapping of name to ndarray
        Not modified.
    order : iterable of name, optional
        Of the record's keys; a stored model is sorted by name. Default: that of `tensors`.
    """
    return ArrayRecord({name: Array(np.asarray(tensors[name])) for name in order or tensors})


def to_tensors(record: ArrayRecord, specs: Sequence[TensorSpec] = ()) -> dict[str, NDArray[Any]]:
    """Return a record's arrays, read-only.

    Parameters
    ----------
    record : ArrayRecord
        From anybody.
    specs : sequence of TensorSpec
        Of the federation's model: an array of floats is rounded to the float type of its
        namesake, since whoever trains in NumPy widens without meaning to.

    Raises
    ------
    InvalidUpdateError
        With reason BAD_FORMAT, if an array is not what its bytes claim to be.
    """
    wanted = {spec.name: NUMPY_DTYPES[spec.dtype] for spec in specs if spec.dtype != "BF16"}
    return {
        name: _rounded(_values(name, array), wanted.get(name)) for name, array in record.items()
    }


def _values(name: str, array: Array) -> NDArray[Any]:
    if array.stype != _NUMPY_FILE:
        _refuse(name, f"is stored as '{printable(array.stype)}', wanted {_NUMPY_FILE!r}")
    stream = io.BytesIO(array.data)
    try:
        shape, is_fortran, dtype = _header(stream)
    except _NOT_READABLE:
        _refuse(name, "is no NumPy file")
    first = stream.tell()
    n_bytes = len(array.data) - first
    if dtype.kind not in "biuf":
        _refuse(name, f"holds {printable(str(dtype))}, wanted numbers")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != n_bytes:
        _refuse(name, f"claims {dtype} of shape {list(shape)}, its data are {n_bytes} bytes")
    if n_bytes == 0:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(array.data, dtype, offset=first)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _rounded(values: NDArray[Any], dtype: np.dtype[Any] | None) -> NDArray[Any]:
    if dtype is None or dtype == values.dtype or dtype.kind != "f" or values.dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and the gate says so
        return values.astype(dtype)


def _refuse(name: str, detail: str) -> NoReturn:
    raise InvalidUpdateError(f"array '{printable(name)}' {detail}", Reason.BAD_FORMAT)
