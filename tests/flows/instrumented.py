"""The nightly flow with a witness at every task: what was executed, and a fault on demand.

``CLMA_TEST_DESK`` names a folder. Every execution of a task body adds a line to ``executed`` there.
A file ``fail-<label>`` makes that body raise; a file ``stall-<label>`` makes it wait to be killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows import nightly as module
from tests.flows.witness import TASKS, witness

DESK = Path(os.environ["CLMA_TEST_DESK"])


@contextmanager
def told(label: str) -> Iterator[None]:
    """Tell that a task's body is executed, and disturb it if that is wanted."""
    with (DESK / "executed").open("a") as log:
        log.write(label + "\n")
    while (DESK / f"stall-{label}").exists():
        time.sleep(0.1)
    if (DESK / f"fail-{label}").exists():
        raise RuntimeError(f"injected into {label}")
    yield


for watched in TASKS:
    witness(watched, told)
    # A fault that is meant to stay is not to be sat out.
    watched.retries = 0

nightly = module.nightly

if __name__ == "__main__":
    import sys

    if sys.argv[1] == "serve":
        nightly.serve(name="instrumented", limit=2, print_starting_message=False)
    else:
        nightly(*sys.argv[1:3], now=True, tracking_uri=sys.argv[3])
