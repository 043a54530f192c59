"""What a plant installs: packages, megabytes, and how long its client takes to be imported.

python -m benchmarks.plant_install
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
N_IMPORTS = 7


def install(folder: Path) -> None:
    """Install the wheel without extras, and what it needs, into a folder of its own."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, "--target", str(folder), str(ROOT)], check=True)


def size_bytes(folder: Path) -> int:
    """Return the size of all files, without the compiled copies that an import leaves."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc")
    return sum(path.stat().st_size for path in files)


def import_seconds(folder: Path, module: str) -> float:
    """Return the median CPU time of a fresh process that imports a module, less an empty one's."""

    def run(code: str) -> float:
        environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        before = os.times()
        words = [sys.executable, "-S", "-c", code]
        subprocess.run(words, check=True, env=environment, cwd=folder)
        after = os.times()
        return (after.children_user - before.children_user) + (
            after.children_system - before.children_system
        )

    run(f"import {module}")  # compiles, and brings the files into memory
    empty = statistics.median(run("pass") for _ in range(N_IMPORTS))
    return statistics.median(run(f"import {module}") for _ in range(N_IMPORTS)) - empty


def main() -> None:
    """Measure in a temporary folder; print one line."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="clma-plant-") as name:
        folder = Path(name)
        install(folder)
        n_packages = len(list(folder.glob("*.dist-info")))
        megabytes = size_bytes(folder) / 1e6
        seconds = import_seconds(folder, "clma.client")
    print(
        f"bench-plant: {n_packages} packages, {megabytes:.0f} MB, import clma.client "
        f"{seconds:.2f} s of CPU; {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
