"""The same job as `benchmarks/peer_side.py`, done by this project from files.

The pass over the files (signed KS of every client, inner products of the movements), groups with
their evidence, and the weighted mean of every group. A task comes as JSON on standard input, the
result leaves as JSON on standard output; the means are left as safetensors files.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.fleet_files import make_fleet, parse_size
from benchmarks.meter import Meter, pin_to_one_cpu, process_cpu_s
from clma.cohorting.contract import CohortingUnit, UnitMember
from clma.cohorting.form import form_groups
from clma.cohorting.placement import AggregationJob
from clma.cohorting.signed_ks import WORTH_COMPILING, compile_kernels
from clma.compiled import is_numba_installed
from clma.config import preset_config
from clma.parameters.tensor_file import TensorFile
from clma.records import ArtifactRef, SealedUpdate
from clma.round import aggregate_cohort, columns_of
from clma.sweep.plan import Shard, SweepPlan
from clma.sweep.shard import sweep_shard, unit_evidence


def run_flagged(
    paths: Sequence[Path], reference_path: Path, weights: Sequence[int]
) -> tuple[list[float], list[int], list[bytes]]:
    """Group flagged clients and average each group; KS, labels and group models."""
    places = {path.stem: path for path in (reference_path, *paths)}

    def opened(ref: ArtifactRef) -> TensorFile:
        return TensorFile(places[Path(ref.path).stem])

    base, config = ArtifactRef(reference_path.stem, reference_path.stem), preset_config("bench")
    updates = [
        SealedUpdate(f"{row:06d}", base.sha256, ArtifactRef(path.stem, path.stem), weight, True)
        for row, (path, weight) in enumerate(zip(paths, weights, strict=True))
    ]
    members = tuple(UnitMember(u.client_id, "c0", u.tensors, u.n_examples) for u in updates)
    unit = CohortingUnit("c0", 2, members, base, (), seed=0)
    plan, columns = SweepPlan((), (), (unit,)), columns_of(base, opened, config)
    sums = sweep_shard(plan, Shard(0, 1), columns, opened, config, _no_votes)
    evidence = unit_evidence(unit, [sums.units[0]], columns, config.cohorting)
    groups = form_groups(unit, evidence, config.cohorting).groups
    label = {client: number for number, group in enumerate(groups) for client in group.members}
    labels = [label[u.client_id] for u in updates]
    models: list[bytes] = []

    def save(model: bytes) -> str:
        models.append(model)
        return ""

    for number in range(len(groups)):
        voters = tuple(u for u in updates if label[u.client_id] == number)
        aggregate_cohort(AggregationJob("c1", voters), opened, base.sha256, config, save)
    return [float(ks) for ks in evidence.ks_statistics], labels, models


def _no_votes(*_: object) -> None:
    """Take the votes of no cohort: everybody flagged."""


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Warm up and measure the job."""
    paths = [Path(path) for path in task["clients"]]
    with TensorFile(Path(task["reference"])) as file:
        n_parameters = sum(math.prod(spec.shape) for spec in file.specs)
    _warm_up(len(paths) * n_parameters)
    with Meter() as meter:
        ks, labels, models = run_flagged(paths, Path(task["reference"]), task["weights"])
    for group, model in enumerate(models):
        (Path(task["out"]) / f"{group}.safetensors").write_bytes(model)
    return {"ks": ks, "labels": labels, **dataclasses.asdict(meter.reading)}


def load_what_is_worth_it(n_values: int) -> None:
    """Load numba where a job of so many drifted values will: it is no part of the job."""
    if n_values >= WORTH_COMPILING and is_numba_installed():
        compile_kernels()


def _warm_up(n_values: int) -> None:
    """Let libraries load what they load late, so that it is no part of the round."""
    load_what_is_worth_it(n_values)
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
