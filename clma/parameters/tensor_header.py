"""The header of a safetensors file: what it may hold, and how it is read and written.

Format (safetensors documentation, "Format"): a JSON object of ``name -> {dtype, shape,
data_offsets}``, and under ``__metadata__`` an object of texts, which nothing here looks at.

A header may come from anywhere, and JSON of 16 MB can cost half a gigabyte as Python objects.
So its length and the number of its values are limited before it is parsed.

Examples
--------
>>> spec = TensorSpec("w", "F32", (2, 3))
>>> text = render_header([spec])
>>> parse_header(text, body_bytes=24, limits=TensorLimits())["w"].spec == spec
True
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from clma.errors import ClmaError
from clma.records import TensorSpec

__all__ = [
    "FLOAT_DTYPES",
    "NUMPY_DTYPES",
    "TensorEntry",
    "TensorFileError",
    "TensorLimits",
    "check_name",
    "parse_header",
    "render_header",
    "tensor_bytes",
]

NUMPY_DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # raw bits; `TensorFile` widens them to float32
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
"""safetensors dtype names that an update may use, and how their bytes are read."""

FLOAT_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})

_METADATA = "__metadata__"
_MAX_DIGITS = 15
"""Of a size or position: no file is longer, and Python's time for longer numbers is quadratic."""


class TensorFileError(ClmaError, ValueError):
    """The file is not a well-formed safetensors file within the limits.

    Parameters
    ----------
    message : str
    unsupported_dtype : bool
        The file is well-formed, but holds a dtype that cannot be averaged here.
    """

    def __init__(self, message: str, *, unsupported_dtype: bool = False) -> None:
        super().__init__(message)
        self.unsupported_dtype = unsupported_dtype


@dataclass(frozen=True, slots=True)
class TensorLimits:
    """Largest sizes that are decoded; all are checked before any array is made.

    Parameters
    ----------
    file_bytes, header_bytes : int
    header_marks : int
        Opening brackets and commas in the header's text, an upper bound of its JSON values; each
        may cost some 120 bytes of memory. At the default, 200 MB at most.
    n_tensors, n_dims, name_chars : int
    """

    file_bytes: int = 8 * 2**30
    header_bytes: int = 16 * 2**20
    header_marks: int = 1_500_000
    n_tensors: int = 20_000
    n_dims: int = 16
    name_chars: int = 512


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor and where its bytes lie, counted from the end of the header."""

    spec: TensorSpec
    start: int
    stop: int


def tensor_bytes(spec: TensorSpec) -> int:
    """Return how many bytes a tensor takes in a file."""
    return math.prod(spec.shape) * NUMPY_DTYPES[spec.dtype].itemsize


def parse_header(
    text: bytes, *, body_bytes: int, limits: TensorLimits
) -> Mapping[str, TensorEntry]:
    """Read a header, sorted by name.

    Parameters
    ----------
    text : bytes
    body_bytes : int
        Of all that follows the header: the tensors have to fill it without a hole.
    limits : TensorLimits

    Raises
    ------
    TensorFileError
        If the header is not as the format says, or a limit is passed.
    """
    header = _load(text, limits)
    _check_metadata(header.pop(_METADATA, {}))
    if len(header) > limits.n_tensors:
        raise TensorFileError(f"{len(header)} tensors, at most {limits.n_tensors} are read")
    entries = {name: _entry(name, header[name], limits) for name in sorted(header)}
    _check_offsets(entries, body_bytes)
    return entries


def render_header(specs: Sequence[TensorSpec]) -> bytes:
    """Write the header of tensors that follow each other as given, padded to a multiple of 8."""
    header: dict[str, Any] = {}
    position = 0
    for spec in specs:
        stop = position + tensor_bytes(spec)
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [position, stop],
        }
        position = stop
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8)


def check_name(name: str, limits: TensorLimits) -> None:
    """Raise TensorFileError if a tensor cannot have this name in a file."""
    if not name or len(name) > limits.name_chars:
        raise TensorFileError(
            f"tensor name of {len(name)} characters, wanted 1 to {limits.name_chars}"
        )
    if name == _METADATA or not (name.isascii() or _is_unicode(name)):
        raise TensorFileError(f"tensor {name!r}: the name cannot be written")


def _is_unicode(text: str) -> bool:
    # JSON may escape half of a surrogate pair, which UTF-8 has no bytes for.
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _load(text: bytes, limits: TensorLimits) -> dict[str, Any]:
    n_marks = sum(text.count(mark) for mark in (b"{", b"[", b","))
    if n_marks > limits.header_marks:
        raise TensorFileError(
            f"header holds up to {n_marks} values, at most {limits.header_marks} are read"
        )
    if not text.startswith(b"{"):
        raise TensorFileError("header does not begin with '{'")
    try:
        header: dict[str, Any] = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_int=_whole_number,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except TensorFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise TensorFileError(f"header is not JSON: {type(error).__name__}") from None
    return header


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise TensorFileError("header names one key twice")
    return result


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise TensorFileError(f"header holds a number of {len(text)} digits")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise TensorFileError(f"header holds {text[:20]}, which is no size and no position")


def _check_metadata(raw: object) -> None:
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise TensorFileError(f"{_METADATA} is not an object of texts")


def _entry(name: str, raw: object, limits: TensorLimits) -> TensorEntry:
    check_name(name, limits)
    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise TensorFileError(f"tensor {name!r}: wanted dtype, shape and data_offsets")
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str):
        raise TensorFileError(f"tensor {name!r}: dtype is no text")
    if dtype not in NUMPY_DTYPES:
        raise TensorFileError(
            f"tensor {name!r}: dtype {dtype[:20]!r} cannot be averaged", unsupported_dtype=True
        )
    if not _naturals(shape) or len(shape) > limits.n_dims:
        raise TensorFileError(
            f"tensor {name!r}: shape is not a list of at most {limits.n_dims} sizes"
        )
    if not _naturals(offsets) or len(offsets) != 2:
        raise TensorFileError(f"tensor {name!r}: data_offsets is not a pair of positions")
    spec = TensorSpec(name, dtype, tuple(shape))
    start, stop = offsets
    if stop - start != tensor_bytes(spec):
        raise TensorFileError(
            f"tensor {name!r}: {stop - start} bytes, its shape needs {tensor_bytes(spec)}"
        )
    return TensorEntry(spec, start, stop)


def _naturals(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values
    )


def _check_offsets(entries: Mapping[str, TensorEntry], size: int) -> None:
    position = 0
    for entry in sorted(entries.values(), key=lambda e: (e.start, e.stop)):
        if entry.start != position:
            raise TensorFileError(f"tensor {entry.spec.name!r}: its bytes overlap or leave a hole")
        position = entry.stop
    if position != size:
        raise TensorFileError(f"tensors end at byte {position} of their part, the file at {size}")
