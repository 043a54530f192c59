"""The same job as `benchmarks/peer_side.py`, done by this project from files.

Signed KS of every client, inner products of the movements, distances, groups, and the weighted mean
of every group. A task comes as JSON on standard input, the result leaves as JSON on standard
output; the means are left as safetensors files.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.fleet_files import make_fleet, parse_size
from benchmarks.meter import Meter, pin_to_one_cpu, process_cpu_s
from clma.aggregation.weighted_mean import average_models
from clma.cohorting.clustering import average_linkage
from clma.cohorting.signed_ks import signed_ks_of_rows
from clma.parameters.moves import cosine_distances, flat_vector, measure_movements
from clma.parameters.selectors import select_default
from clma.parameters.tensor_file import TensorFile


def run_flagged(
    paths: Sequence[Path], reference_path: Path, weights: Sequence[int]
) -> tuple[list[float], list[int], list[bytes]]:
    """Group flagged clients and average each group; KS, labels and group models."""
    with ExitStack() as stack:
        reference = stack.enter_context(TensorFile(reference_path))
        files = [stack.enter_context(TensorFile(path)) for path in paths]
        names = select_default(reference.specs)
        movements = measure_movements(files, reference, names)
        ks = signed_ks_of_rows(
            [flat_vector(file, names) for file in files], flat_vector(reference, names)
        )
        labels = average_linkage(cosine_distances(movements.gram)).labels
        models = []
        for group in range(max(labels) + 1):
            rows = [i for i, label in enumerate(labels) if label == group]
            opened = [partial(TensorFile, paths[i]) for i in rows]
            models.append(average_models(opened, [weights[i] for i in rows], reference))
    return list(ks), list(labels), models


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Warm up and measure the job."""
    paths = [Path(path) for path in task["clients"]]
    _warm_up()
    with Meter() as meter:
        ks, labels, models = run_flagged(paths, Path(task["reference"]), task["weights"])
    for group, model in enumerate(models):
        (Path(task["out"]) / f"{group}.safetensors").write_bytes(model)
    return {"ks": ks, "labels": labels, **dataclasses.asdict(meter.reading)}


def _warm_up() -> None:
    """Let libraries load what they load late, so that it is no part of the round."""
    with tempfile.TemporaryDirectory() as name:
        fleet = make_fleet(parse_size("4x64"), Path(name))
        run_flagged(fleet.drifted, fleet.reference, fleet.weights)


def main() -> None:
    """Do the task on standard input."""
    pin_to_one_cpu()
    result = run_task(json.load(sys.stdin))
    libraries = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    print(json.dumps({**result, "process_cpu_s": process_cpu_s(), "libraries": libraries}))


if __name__ == "__main__":
    main()
