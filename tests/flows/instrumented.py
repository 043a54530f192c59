"""The nightly flow with a witness at every task: what was executed, and a fault on demand.

``CLMA_TEST_DESK`` names a folder. Every execution of a task body adds a line to ``executed`` there.
A file ``fail-<label>`` makes that body raise; a file ``stall-<label>`` makes it wait to be killed.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import Any

import flows.round as night
from flows import nightly as module
from tasks.choose_round import choose_round

DESK = Path(os.environ["CLMA_TEST_DESK"])


def label_of(name: str, arguments: dict[str, Any]) -> str:
    """Return a task's name, with the cohort or unit it is about."""
    about = [getattr(v, "cohort_id", getattr(v, "unit_id", None)) for v in arguments.values()]
    return "-".join([name, *(a for a in (*about, arguments.get("cohort_id")) if a)])


def witness(task: Any) -> None:
    """Make a task's body tell that it is executed."""
    body = task.fn

    @functools.wraps(body)
    def told(*args: Any, **kwargs: Any) -> Any:
        names = body.__code__.co_varnames[: body.__code__.co_argcount]
        label = label_of(task.name, {**dict(zip(names, args, strict=False)), **kwargs})
        with (DESK / "executed").open("a") as log:
            log.write(label + "\n")
        while (DESK / f"stall-{label}").exists():
            time.sleep(0.1)
        if (DESK / f"fail-{label}").exists():
            raise RuntimeError(f"injected into {label}")
        return body(*args, **kwargs)

    task.fn = told


for watched in (
    choose_round,
    night.name_run,
    night.seal_round,
    night.check_quorum,
    night.measure_updates,
    night.average_everybody,
    night.quarantine_clients,
    night.form_groups,
    night.place_groups,
    night.aggregate_cohort,
    night.decide_round,
    night.commit_round,
    night.publish_cohort,
    night.publish_round,
    night.open_round,
):
    witness(watched)
    # A fault that is meant to stay is not to be sat out.
    watched.retries = 0

nightly = module.nightly

if __name__ == "__main__":
    import sys

    if sys.argv[1] == "serve":
        nightly.serve(name="instrumented", limit=2, print_starting_message=False)
    else:
        nightly(*sys.argv[1:3], now=True, tracking_uri=sys.argv[3])
