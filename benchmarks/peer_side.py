"""One round of the public package `fed-clma` on flagged clients, in an environment of its own.

Started by `benchmarks/peer.py` with that environment's Python; the import name `clma` is the other
package's here. A task comes as JSON on standard input, the result leaves as JSON on standard
output; the means are left as raw float32 files. Steps and order are those of its strategy's
`aggregate_train`: flatten and stack, cohort, average each group, average everybody for the next
reference.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from clma.cohort import cohorter
from clma.params import stack_flattened
from fleet_files import read_tensors
from meter import Meter, pin_to_one_cpu, process_cpu_s

import clma
from clma import CLMACohorter, DefaultSelector, weighted_average

Params = dict[str, Any]
Statistic = Callable[[Any, Any], float]


class SampledStatistic:
    """The package's KS on the first clients, known values for the others; keeps the seconds."""

    def __init__(self, real: Statistic, n_real: int, known: Sequence[float]) -> None:
        self._real, self._n_real, self._known = real, n_real, known
        self._n_calls = 0
        self.seconds: list[float] = []

    def __call__(self, client: Any, reference: Any) -> float:
        index = self._n_calls
        self._n_calls += 1
        if index >= self._n_real:
            return self._known[index]
        started = time.process_time()
        value = self._real(client, reference)
        self.seconds.append(time.process_time() - started)
        return value


def run_flagged(
    clients: Sequence[Params], reference: Params, weights: Sequence[float]
) -> tuple[list[float], list[int], list[Params]]:
    """Do what the package's server does with flagged clients; KS, labels and group means."""
    selector = DefaultSelector()
    ids = list(range(len(clients)))
    matrix = stack_flattened(clients, selector)
    assignment = CLMACohorter().cohort(ids, matrix, selector.flatten(reference))
    groups: dict[int, list[int]] = {}
    for i in ids:
        groups.setdefault(assignment.assignments[i], []).append(i)
    means = [
        weighted_average([clients[i] for i in groups[g]], [weights[i] for i in groups[g]])
        for g in sorted(groups)
    ]
    weighted_average(clients, weights)
    return (
        [assignment.ks_statistics[i] for i in ids],
        [assignment.assignments[i] for i in ids],
        means,
    )


def time_ks(task: dict[str, Any]) -> dict[str, Any]:
    """Time the KS of a few clients alone, on the first values if a number of them is given."""
    selector, most = DefaultSelector(), task["n_values"]
    reference = selector.flatten(read_tensors(Path(task["reference"])))[:most].copy()
    seconds, values = [], []
    for path in task["clients"]:
        client = selector.flatten(read_tensors(Path(path)))[:most].copy()
        started = time.process_time()
        values.append(cohorter.signed_ks_statistic(client, reference))
        seconds.append(time.process_time() - started)
    return {"ks": values, "ks_seconds": seconds}


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Read the clients into memory, warm up, measure the round."""
    reference = read_tensors(Path(task["reference"]))
    clients = [read_tensors(Path(path)) for path in task["clients"]]
    weights = [float(w) for w in task["weights"]]
    _warm_up()
    statistic = SampledStatistic(
        cohorter.signed_ks_statistic, task["n_ks"] or len(clients), task["known_ks"]
    )
    cohorter.signed_ks_statistic = statistic
    with Meter() as meter:
        ks, labels, means = run_flagged(clients, reference, weights)
    for group, mean in enumerate(means):
        np.concatenate(list(mean.values())).tofile(Path(task["out"]) / f"{group}.f32")
    return {
        "ks": ks,
        "labels": labels,
        "ks_seconds": statistic.seconds,
        **dataclasses.asdict(meter.reading),
    }


def _warm_up() -> None:
    """Let libraries load what they load late, so that it is no part of the round."""
    rng = np.random.default_rng(0)
    tiny = [{"w.weight": rng.normal(size=64).astype(np.float32)} for _ in range(4)]
    run_flagged(tiny, tiny[0], [1.0] * 4)


def main() -> None:
    """Do the task on standard input."""
    pin_to_one_cpu()
    if Path(sys.prefix) not in Path(str(clma.__file__)).parents:
        sys.exit(f"clma is {clma.__file__}, wanted the one of {sys.prefix}")
    task = json.load(sys.stdin)
    result = time_ks(task) if task["only_ks"] else run_task(task)
    libraries = {name: version(name) for name in ("fed-clma", "numpy", "scipy", "scikit-learn")}
    print(json.dumps({**result, "process_cpu_s": process_cpu_s(), "libraries": libraries}))


if __name__ == "__main__":
    main()
