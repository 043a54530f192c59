"""Read and write safetensors files without code execution and without surprises.

Reader and writer are our own. Reading: sizes are checked before anything is decoded, bfloat16 can
be read without torch (safetensors' NumPy interface refuses it), and tensors come as views of the
mapped file, so a round never holds all clients' weights in memory. Writing: models are addressed by
the digest of their bytes, which must not change with the release of a library. The tests read what
is written here with the safetensors library, too.

Format (safetensors documentation, "Format"): 8 bytes little-endian header length, a JSON header of
``name -> {dtype, shape, data_offsets}``, then one buffer without holes.

Examples
--------
>>> import tempfile, pathlib
>>> import numpy as np
>>> path = pathlib.Path(tempfile.mkdtemp()) / "m.safetensors"
>>> _ = path.write_bytes(serialize_tensors({"w": np.ones((2, 3), np.float32)}))
>>> with TensorFile(path) as file:
...     file.specs, float(file.read("w").sum())
((TensorSpec(name='w', dtype='F32', shape=(2, 3)),), 6.0)
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import ClmaError, ShapeMismatchError
from clma.records import TensorSpec

__all__ = [
    "FLOAT_DTYPES",
    "NUMPY_DTYPES",
    "TensorFile",
    "TensorFileError",
    "TensorLimits",
    "serialize_tensors",
    "specs_of",
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
    "BF16": np.dtype("<u2"),  # raw bits; `TensorFile.read` widens them to float32
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
"""safetensors dtype names that an update may use, and how their bytes are read."""

FLOAT_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})

_NAME_OF_NUMPY = {
    dtype.newbyteorder("="): name for name, dtype in NUMPY_DTYPES.items() if name != "BF16"
}


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
    """Largest sizes that are decoded; all are checked before any array is made."""

    file_bytes: int = 8 * 2**30
    header_bytes: int = 16 * 2**20
    n_tensors: int = 20_000
    n_dims: int = 16
    name_chars: int = 512


@dataclass(frozen=True, slots=True)
class _Entry:
    spec: TensorSpec
    start: int
    stop: int


class TensorFile:
    """A safetensors file opened for reading, mapped into memory.

    Parameters
    ----------
    path : Path
    limits : TensorLimits

    Raises
    ------
    TensorFileError
        If the header, the offsets or the sizes are not as the format says, or a limit is passed.
    """

    def __init__(self, path: Path, *, limits: TensorLimits | None = None) -> None:
        limits = limits or TensorLimits()
        size = path.stat().st_size
        if size > limits.file_bytes:
            raise TensorFileError(f"file has {size} bytes, at most {limits.file_bytes} are read")
        if size < 8:
            raise TensorFileError(f"file has {size} bytes, a safetensors file has at least 8")
        with path.open("rb") as handle:
            self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._entries = _read_header(self._map, size, limits)
        except BaseException:
            self._map.close()
            raise
        self.specs: tuple[TensorSpec, ...] = tuple(e.spec for e in self._entries.values())

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the mapping, unless a view of it is still in use (then it goes with the view)."""
        try:
            self._map.close()
        except BufferError:
            return

    def spec(self, name: str) -> TensorSpec:
        """Return the spec of one tensor; KeyError if there is none of that name."""
        return self._entries[name].spec

    def read(self, name: str) -> NDArray[Any]:
        """Return one tensor as a read-only view; bfloat16 comes as a float32 copy (exact)."""
        entry = self._entries[name]
        dtype = NUMPY_DTYPES[entry.spec.dtype]
        count = math.prod(entry.spec.shape)
        raw = np.frombuffer(self._map, dtype=dtype, count=count, offset=entry.start)
        if entry.spec.dtype == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return raw.reshape(entry.spec.shape)


def _read_header(data: mmap.mmap, size: int, limits: TensorLimits) -> dict[str, _Entry]:
    length = int.from_bytes(data[:8], "little")
    if length > limits.header_bytes or 8 + length > size:
        raise TensorFileError(
            f"header claims {length} bytes, at most {min(limits.header_bytes, size - 8)} fit"
        )
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"), object_pairs_hook=_unique_keys)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TensorFileError(f"header is not JSON: {type(error).__name__}") from None
    if not isinstance(header, dict):
        raise TensorFileError(f"header is a JSON {type(header).__name__}, wanted an object")
    header.pop("__metadata__", None)
    if len(header) > limits.n_tensors:
        raise TensorFileError(f"{len(header)} tensors, at most {limits.n_tensors} are read")
    entries = {n: _entry(n, header[n], 8 + length, limits) for n in sorted(header)}
    _check_offsets(entries, 8 + length, size)
    return entries


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise TensorFileError("header names one key twice")
    return result


def _entry(name: str, raw: object, base: int, limits: TensorLimits) -> _Entry:
    if not name or len(name) > limits.name_chars:
        raise TensorFileError(
            f"tensor name of {len(name)} characters, wanted 1 to {limits.name_chars}"
        )
    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise TensorFileError(f"tensor {name!r}: wanted dtype, shape and data_offsets")
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str) or dtype not in NUMPY_DTYPES:
        raise TensorFileError(
            f"tensor {name!r}: dtype {str(dtype)[:20]!r} cannot be averaged", unsupported_dtype=True
        )
    if not _naturals(shape) or len(shape) > limits.n_dims:
        raise TensorFileError(
            f"tensor {name!r}: shape is not a list of at most {limits.n_dims} sizes"
        )
    if not _naturals(offsets) or len(offsets) != 2:
        raise TensorFileError(f"tensor {name!r}: data_offsets is not a pair of positions")
    start, stop = offsets
    wanted = math.prod(shape) * NUMPY_DTYPES[dtype].itemsize
    if stop - start != wanted:
        raise TensorFileError(f"tensor {name!r}: {stop - start} bytes, its shape needs {wanted}")
    return _Entry(TensorSpec(name, dtype, tuple(shape)), base + start, base + stop)


def _naturals(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**48 for v in values
    )


def _check_offsets(entries: Mapping[str, _Entry], base: int, size: int) -> None:
    position = base
    for entry in sorted(entries.values(), key=lambda e: (e.start, e.stop)):
        if entry.start != position:
            raise TensorFileError(f"tensor {entry.spec.name!r}: its bytes overlap or leave a hole")
        position = entry.stop
    if position != size:
        raise TensorFileError(f"tensors end at byte {position}, the file at {size}")


def specs_of(tensors: Mapping[str, NDArray[Any]]) -> tuple[TensorSpec, ...]:
    """Return the specs of arrays in memory, sorted by name."""
    specs = []
    for name in sorted(tensors):
        dtype = tensors[name].dtype.newbyteorder("=")
        if dtype not in _NAME_OF_NUMPY:
            raise TensorFileError(
                f"tensor {name!r}: dtype {dtype} cannot be averaged", unsupported_dtype=True
            )
        specs.append(TensorSpec(name, _NAME_OF_NUMPY[dtype], tuple(tensors[name].shape)))
    return tuple(specs)


def serialize_tensors(
    tensors: Mapping[str, NDArray[Any]], specs: Sequence[TensorSpec] | None = None
) -> bytes:
    """Write arrays as the bytes of a safetensors file; equal input gives equal bytes.

    Parameters
    ----------
    tensors : mapping of name to ndarray
        Not modified.
    specs : sequence of TensorSpec, optional
        Dtypes to write; floats are rounded once to the narrower type (nearest, ties to even).
        Default: the arrays' own.

    Raises
    ------
    ShapeMismatchError
        If names or shapes are not those of `specs`.
    TensorFileError
        If a dtype cannot be written.
    """
    specs = specs_of(tensors) if specs is None else tuple(specs)
    if {s.name for s in specs} != set(tensors):
        raise ShapeMismatchError(
            f"tensors {sorted(tensors)}, wanted {sorted(s.name for s in specs)}"
        )
    header: dict[str, Any] = {}
    buffers: list[bytes] = []
    position = 0
    # Wide dtypes first, so that every tensor stays aligned in the mapped file.
    for spec in sorted(specs, key=lambda s: (-NUMPY_DTYPES[s.dtype].itemsize, s.name)):
        array = np.asarray(tensors[spec.name])
        if tuple(array.shape) != spec.shape:
            raise ShapeMismatchError(
                f"tensor {spec.name!r} has shape {list(array.shape)}, wanted {list(spec.shape)}"
            )
        buffers.append(_raw(array, spec.dtype))
        stop = position + len(buffers[-1])
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [position, stop],
        }
        position = stop
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *buffers])


def _raw(array: NDArray[Any], dtype: str) -> bytes:
    if dtype != "BF16":
        return np.ascontiguousarray(array.astype(NUMPY_DTYPES[dtype])).tobytes()
    bits = np.ascontiguousarray(array, dtype="<f4").view(np.uint32)
    # Round to nearest, ties to even; NaN is kept a NaN by forcing a bit of its payload.
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    nan = np.isnan(array.astype(np.float32))
    return np.where(nan, np.uint16(0x7FC0), rounded).astype("<u2").tobytes()
