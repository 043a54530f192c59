"""Read and write safetensors files without code execution and without surprises.

Reader and writer are our own. Reading: sizes are checked before anything is decoded, bfloat16 can
be read without torch (safetensors' NumPy interface refuses it), and tensors come as views of the
mapped file, so a round never holds all clients' weights in memory. Writing: models are addressed by
the digest of their bytes, which must not change with the release of a library. The tests read what
is written here with the safetensors library, too.

Format (safetensors documentation, "Format"): 8 bytes little-endian header length, the header
(`clma.parameters.tensor_header`), then one buffer without holes.

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

import io
import math
import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import ShapeMismatchError
from clma.parameters.tensor_header import (
    FLOAT_DTYPES,
    NUMPY_DTYPES,
    TensorFileError,
    TensorLimits,
    check_name,
    parse_header,
    render_header,
)
from clma.records import TensorSpec

__all__ = [
    "FLOAT_DTYPES",
    "MAX_MAGNITUDE",
    "NUMPY_DTYPES",
    "TensorFile",
    "TensorFileError",
    "TensorLimits",
    "count_unusable",
    "encode_values",
    "file_order",
    "join_tensors",
    "serialize_tensors",
    "specs_of",
]

MAX_MAGNITUDE = 1e100
"""Largest weight: the squares of 10^12 of them can still be added up in float64."""

# Absent on Windows. NONBLOCK: opening a named pipe must not wait for a writer.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_NAME_OF_NUMPY = {
    dtype.newbyteorder("="): name for name, dtype in NUMPY_DTYPES.items() if name != "BF16"
}


class TensorFile:
    """A safetensors file opened for reading.

    Parameters
    ----------
    path : Path
    limits : TensorLimits, optional
    mapped : bool
        True: tensors are views of the mapped file, for files that nobody changes. False: for files
        from outside. A mapped file that somebody shortens ends the process with SIGBUS when it is
        looked at, which no program can answer; one that is read gives an error.

    Raises
    ------
    TensorFileError
        If it is no plain file, the header, the offsets or the sizes are not as the format says, or
        a limit is passed.
    """

    def __init__(
        self, path: Path, *, limits: TensorLimits | None = None, mapped: bool = True
    ) -> None:
        limits = limits or TensorLimits()
        self.path = path
        self._file = _open_plain(path)
        self._is_mapped = mapped
        self._map: mmap.mmap | None = None
        try:
            self._size = _checked_size(os.fstat(self._file.fileno()).st_size, limits)
            length = _header_length(self._read(0, 8), self._size, limits)
            text = self._read(8, 8 + length)
            self._base = 8 + length
            body_bytes = self._size - self._base
            self._entries = parse_header(text, body_bytes=body_bytes, limits=limits)
        except BaseException:
            self._file.close()
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
        """Release the file, unless a view of it is still in use (then it goes with the view)."""
        self._file.close()
        try:
            if self._map is not None:
                self._map.close()
        except BufferError:
            return

    def spec(self, name: str) -> TensorSpec:
        """Return the spec of one tensor; KeyError if there is none of that name."""
        return self._entries[name].spec

    def position(self, name: str) -> int:
        """Return the byte of the file at which a tensor begins; KeyError if there is none."""
        return self._base + self._entries[name].start

    def read(self, name: str) -> NDArray[Any]:
        """Return one tensor, read-only; bfloat16 comes as a float32 copy (exact).

        Raises
        ------
        TensorFileError
            If the file has become shorter since it was opened.
        """
        spec = self._entries[name].spec
        return self._values(name, 0, math.prod(spec.shape)).reshape(spec.shape)

    def blocks(self, name: str, n_values: int) -> Iterator[NDArray[Any]]:
        """Yield one tensor in flat pieces of at most `n_values`, so that memory is bounded.

        Raises
        ------
        TensorFileError
            If the file has become shorter since it was opened.
        """
        total = math.prod(self._entries[name].spec.shape)
        for first in range(0, total, n_values):
            yield self._values(name, first, min(n_values, total - first))

    def _values(self, name: str, first: int, count: int) -> NDArray[Any]:
        entry = self._entries[name]
        dtype = NUMPY_DTYPES[entry.spec.dtype]
        start = self._base + entry.start + first * dtype.itemsize
        if self._is_mapped:
            raw = np.frombuffer(self._mapping(), dtype=dtype, count=count, offset=start)
        else:
            raw = np.frombuffer(self._read(start, start + count * dtype.itemsize), dtype)
        if entry.spec.dtype == "BF16":
            return (raw.astype(np.uint32) << 16).view(np.float32)
        return raw

    def _mapping(self) -> mmap.mmap:
        # Only when values are asked for: most files are opened for their header.
        if self._map is None:
            size = os.fstat(self._file.fileno()).st_size
            if size < self._size:
                raise TensorFileError(f"file ends at byte {size}, it was longer when opened")
            self._map = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
            self._file.close()
        return self._map

    def _read(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        parts = []
        while start < stop:
            parts.append(self._file.read(stop - start))
            if not parts[-1]:
                raise TensorFileError(f"file ends at byte {start}, it was longer when opened")
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _open_plain(path: Path) -> io.FileIO:
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TensorFileError("not a plain file")
    return io.FileIO(descriptor, "rb")


def _checked_size(size: int, limits: TensorLimits) -> int:
    if size > limits.file_bytes:
        raise TensorFileError(f"file has {size} bytes, at most {limits.file_bytes} are read")
    if size < 8:
        raise TensorFileError(f"file has {size} bytes, a safetensors file has at least 8")
    return size


def _header_length(prefix: bytes, size: int, limits: TensorLimits) -> int:
    length = int.from_bytes(prefix, "little")
    if length > limits.header_bytes or 8 + length > size:
        raise TensorFileError(
            f"header claims {length} bytes, at most {min(limits.header_bytes, size - 8)} fit"
        )
    return length


def count_unusable(values: NDArray[np.floating]) -> int:
    """Return how many weights are NaN, infinite or beyond `MAX_MAGNITUDE`."""
    if values.dtype == np.float64:  # no narrower type reaches it
        return int(np.count_nonzero(~(np.abs(values) <= MAX_MAGNITUDE)))
    return int(np.count_nonzero(~np.isfinite(values)))


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
    specs = file_order(specs)
    for spec in specs:
        check_name(spec.name, TensorLimits())
        shape = tuple(np.shape(tensors[spec.name]))
        if shape != spec.shape:
            raise ShapeMismatchError(
                f"tensor {spec.name!r} has shape {list(shape)}, wanted {list(spec.shape)}"
            )
    return join_tensors(specs, (encode_values(np.asarray(tensors[s.name]), s.dtype) for s in specs))


def file_order(specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return specs in the order of a file that is written here."""
    # Wide dtypes first, so that every tensor stays aligned in the mapped file.
    return tuple(sorted(specs, key=lambda s: (-NUMPY_DTYPES[s.dtype].itemsize, s.name)))


def join_tensors(specs: Sequence[TensorSpec], buffers: Iterable[NDArray[np.uint8]]) -> bytes:
    """Write the bytes of tensors, in `file_order`, as a safetensors file."""
    text = render_header(specs)
    return b"".join([len(text).to_bytes(8, "little"), text, *(b.data for b in buffers)])


def encode_values(values: NDArray[Any], dtype: str) -> NDArray[np.uint8]:
    """Return values as they lie in a file, flat; floats are rounded once to a narrower dtype."""
    wanted = values if dtype == "BF16" else np.ascontiguousarray(values, NUMPY_DTYPES[dtype])
    raw = _bfloat16_bits(wanted) if dtype == "BF16" else wanted
    return raw.reshape(-1).view(np.uint8)


def _bfloat16_bits(array: NDArray[Any]) -> NDArray[np.uint16]:
    wide = np.ascontiguousarray(array, dtype="<f8")
    with np.errstate(over="ignore"):
        single = wide.astype("<f4")
    bits = single.view(np.uint32)
    # Rounding twice may land beside the nearest value. So the first time is to odd: towards zero,
    # and the last bit says that something was cut.
    bits = (bits - (np.abs(single) > np.abs(wide))) | (single != wide)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    # NaN is kept a NaN by forcing a bit of its payload.
    return np.where(np.isnan(wide), np.uint16(0x7FC0), rounded).astype("<u2")
