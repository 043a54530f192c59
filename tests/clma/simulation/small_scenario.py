"""Scenarios of three plants and few windows, for comparisons; a file disturbs them.

``CLMA_TEST_DESK`` names the folder where they write down what is run, and look for the files
``broken-SEED`` (the cell fails), ``bug-SEED`` (not as expected), ``dies-SEED`` (its process ends)
and ``hangs-SEED``.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from pathlib import Path

from clma.errors import InvalidConfigError
from clma.simulation.fleet import Fleet
from clma.simulation.recipes import load_fleet


def three_plants(seed: int, data_dir: Path | None) -> Fleet:
    """Write the seed down and build the fleet."""
    desk = Path(os.environ["CLMA_TEST_DESK"])
    with (desk / "executed").open("a") as log:
        log.write(f"{seed}\n")
    if (desk / f"broken-{seed}").exists():
        raise InvalidConfigError(f"recording {seed} is unreadable")
    if (desk / f"bug-{seed}").exists():
        print("a line that is no reply")  # noqa: T201
        raise IndexError("list index out of range")
    if (desk / f"dies-{seed}").exists():
        os._exit(3)
    while (desk / f"hangs-{seed}").exists():
        time.sleep(0.05)
    fleet = load_fleet(None, "plant", seed, n_clients=3)
    return dataclasses.replace(fleet, n_windows=16, default_rounds=2)


def nothing(seed: int, data_dir: Path | None) -> str:
    """Return what is no fleet."""
    return "no fleet"


def tell_threads(seed: int, data_dir: Path | None) -> Fleet:
    """Fail with the most threads that any library would use."""
    import torch
    from threadpoolctl import threadpool_info

    n_threads = max([torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())])
    raise InvalidConfigError(f"threads: {n_threads}")


def tell_temporary(seed: int, data_dir: Path | None) -> Fleet:
    """Fail with the folder where temporary files go."""
    raise InvalidConfigError(f"temporary: {tempfile.gettempdir()}")
