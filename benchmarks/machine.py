"""What this machine can do at most: rates that a round is held against.

    python -m benchmarks.machine --size 50x1e6

Rates are per CPU second (those of a cold read per elapsed second) and the best of a few tries: a
limit is what was reached once, and other work on the machine only takes away from it.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import threadpool_limits

from benchmarks.fleet_files import FleetSize, NoRoomError, make_fleet, parse_size

__all__ = ["MachineRates", "describe_machine", "measure_rates", "roofline_s"]

N_TRIES = 5
RESOLVED_S = 0.02
READ_BYTES = 1 << 20
MAX_SORTED = 20_000_000
COPY_VALUES = 1 << 25
GRAM_COLUMNS = (2_048, 16_384, 65_536)
MANY_ROWS = 200
"""From here on the product is as fast in narrow blocks."""
MAX_FILES = 50
"""Files that are read for a rate; more of them are read no faster."""


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Best rates at one model size and number of rows.

    Parameters
    ----------
    read : float
        Bytes per CPU second, from files in the page cache, by `preadv` into one buffer or from a
        mapping, whichever is faster.
    read_cold : float or None
        Bytes per elapsed second after the files' pages were dropped; None where they cannot be.
    copy : float
        Bytes copied per CPU second, in memory.
    sort_float32, sort_float64 : float
        Values sorted per CPU second, in arrays of one model's size (at most 20 million).
    gram_float32, gram_float64 : float
        Floating-point operations per CPU second of rows times their transpose, at n rows, counted
        as n (n + 1) a column.
    """

    read: float
    read_cold: float | None
    copy: float
    sort_float32: float
    sort_float64: float
    gram_float32: float
    gram_float64: float


def measure_rates(files: Sequence[Path], *, n_rows: int, n_values: int) -> MachineRates:
    """Measure all rates with one BLAS thread.

    Parameters
    ----------
    files : sequence of Path
        The very files that a round reads.
    n_rows : int >= 1
        Rows of the Gram matrix.
    n_values : int >= 1
        Parameters of one model.
    """
    read_files = files[:MAX_FILES]
    with threadpool_limits(limits=1):
        return MachineRates(
            read=max(_rate(_read_with(read), read_files) for read in (_pread, _read_mapped)),
            read_cold=_cold_rate(read_files),
            copy=_copy_rate(),
            sort_float32=_sort_rate(np.float32, n_values),
            sort_float64=_sort_rate(np.float64, n_values),
            gram_float32=_gram_rate(np.float32, n_rows),
            gram_float64=_gram_rate(np.float64, n_rows),
        )


def roofline_s(size: FleetSize, rates: MachineRates) -> float:
    """Return the CPU seconds below which a round cannot be at these rates.

    Notes
    -----
    Every file is read once; every value goes once into a mean, at the rate of a copy; every drifted
    client and the reference are sorted once in float32; the inner products of the drifted clients
    are one symmetric product in float32. What a method avoids (a KS that counts instead of
    sorting) can take it below.
    """
    n, p, drifted = size.n_clients, size.n_parameters, size.n_drifted
    return (
        (n + 1) * size.model_bytes / rates.read
        + n * size.model_bytes / rates.copy
        + (drifted + 1) * p / rates.sort_float32
        + drifted * (drifted + 1) * p / rates.gram_float32
    )


def describe_machine() -> str:
    """Say what kind of machine this is, without its name."""
    return (
        f"{_processor()}, {os.cpu_count()} CPUs, {_memory_gib():.0f} GiB, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _best(work: Callable[[], object]) -> float:
    """Return the shortest time of some tries, each repeated until the clock can resolve it."""
    repeats = 1
    times: list[float] = []
    while len(times) < N_TRIES:
        started = time.process_time()
        for _ in range(repeats):
            work()
        seconds = time.process_time() - started
        if seconds < RESOLVED_S:
            repeats *= 4
        else:
            times.append(seconds / repeats)
    return min(times)


def _read_with(
    read: Callable[[int, int, NDArray[np.uint8]], None],
) -> Callable[[Sequence[Path]], None]:
    buffer = np.empty(READ_BYTES, np.uint8)

    def read_all(files: Sequence[Path]) -> None:
        for path in files:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                read(descriptor, os.fstat(descriptor).st_size, buffer)
            finally:
                os.close(descriptor)

    return read_all


def _pread(descriptor: int, size: int, buffer: NDArray[np.uint8]) -> None:
    for start in range(0, size, buffer.size):
        os.preadv(descriptor, [buffer.data], start)


def _read_mapped(descriptor: int, size: int, buffer: NDArray[np.uint8]) -> None:
    values = np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)
    for start in range(0, size, buffer.size):
        part = values[start : start + buffer.size]
        np.copyto(buffer[: part.size], part)


def _rate(read: Callable[[Sequence[Path]], None], files: Sequence[Path]) -> float:
    read(files)  # whatever was not in the page cache is now
    return _total_bytes(files) / _best(lambda: read(files))


def _cold_rate(files: Sequence[Path]) -> float | None:
    if not hasattr(os, "posix_fadvise"):
        return None
    read = _read_with(_pread)
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    started = time.perf_counter()
    read(files)
    return _total_bytes(files) / (time.perf_counter() - started)


def _total_bytes(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _copy_rate() -> float:
    source = np.ones(COPY_VALUES, np.float32)
    target = np.empty_like(source)
    return source.nbytes / _best(lambda: np.copyto(target, source))


def _sort_rate(dtype: DTypeLike, n_values: int) -> float:
    values = np.random.default_rng(0).standard_normal(min(n_values, MAX_SORTED)).astype(dtype)
    copy = _best(values.copy)

    def copy_and_sort() -> None:
        values.copy().sort()

    return values.size / max(_best(copy_and_sort) - copy, 1e-9)


def _gram_rate(dtype: DTypeLike, n_rows: int) -> float:
    rates = []
    for columns in GRAM_COLUMNS if n_rows <= MANY_ROWS else GRAM_COLUMNS[:1]:
        block = np.random.default_rng(0).standard_normal((n_rows, columns)).astype(dtype)
        seconds = _best(lambda block=block: block @ block.T)  # type: ignore[misc]
        rates.append(n_rows * (n_rows + 1) * columns / seconds)
    return max(rates)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def render_rates(rates: MachineRates) -> str:
    """Write rates as a Markdown table."""
    cold = "not measured" if rates.read_cold is None else f"{rates.read_cold / 1e9:.2f} GB/s"
    rows = {
        "read, page cache": f"{rates.read / 1e9:.2f} GB/s",
        "read, cold (elapsed)": cold,
        "copy in memory": f"{rates.copy / 1e9:.2f} GB/s",
        "sort float32": f"{rates.sort_float32 / 1e6:.0f} M values/s",
        "sort float64": f"{rates.sort_float64 / 1e6:.0f} M values/s",
        "Gram float32": f"{rates.gram_float32 / 1e9:.1f} GF/s",
        "Gram float64": f"{rates.gram_float64 / 1e9:.1f} GF/s",
    }
    return "\n".join(["| what | rate |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])


def main(
    size: Annotated[str, typer.Option("--size", help="CLIENTSxPARAMETERS")] = "10x545290",
    folder: Annotated[Path, typer.Option("--dir", help="Where the fleets lie.")] = (
        Path(__file__).parent / ".data"
    ),
) -> None:
    """Print this machine's rates for one fleet, and the time that they allow."""
    try:
        fleet = make_fleet(parse_size(size), folder, progress=True)
    except (NoRoomError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    n_values = fleet.size.n_parameters
    rates = measure_rates(
        (*fleet.drifted, *fleet.quiet), n_rows=fleet.size.n_drifted, n_values=n_values
    )
    print(describe_machine())
    print(render_rates(rates))
    print(f"machine: {fleet.size} cannot take less than {roofline_s(fleet.size, rates):.3f} CPU s")


if __name__ == "__main__":
    typer.run(main)
