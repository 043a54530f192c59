"""This project's grouping step against the public package `fed-clma`, on the same arrays.

    make bench-peer SIZE=10x545290

Both do one round's job for clients that all flagged drift: KS of every client, projection or inner
products, groups, the weighted mean of every group. The package gets its arrays in memory, its only
way; ours reads them from files, and that is part of its time. Each run is a fresh process on one
CPU with one BLAS thread; runs alternate. Seconds are CPU seconds (user and system), medians.

Where the package would take longer than ``--limit-s`` for a run, or does not fit into memory, part
of its time is extrapolated, and the output says which part.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.fleet_files import Fleet, NoRoomError, flat, make_fleet, parse_size
from benchmarks.sides import ONE_THREAD, BenchmarkError, Result, ask_side

HERE = Path(__file__).parent
MAX_RUNS = 5
N_SAMPLED = 3
"""Clients whose KS is timed where it is not timed for all."""
PEER_BYTES_PER_VALUE = 29.4
"""Memory of the package per client and parameter, its float32 input included."""
MAX_PREFIX = 20_000_000
"""Values of one client on which KS is timed where the package does not fit into memory."""
KS_TOLERANCE, MEAN_TOLERANCE = 1e-12, 1e-6


@dataclass(frozen=True, slots=True)
class Plan:
    """How the package is measured.

    Parameters
    ----------
    n_runs : int
        Of the package.
    n_ks : int
        Clients whose KS is timed.
    fits : bool
        False: only KS is timed, the rest is left out in its favour.
    n_values : int
        Of every client; fewer than the model has only where it does not fit.
    note : str
        What the output has to say of it.
    """

    n_runs: int
    n_ks: int
    fits: bool
    n_values: int
    note: str

    def extrapolates(self, n_clients: int) -> bool:
        """Tell whether a part of the seconds is not measured."""
        return self.n_ks < n_clients or not self.fits


def make_plan(fleet: Fleet, ks_s: float, limit_s: float, free_bytes: int, n_runs: int) -> Plan:
    """Decide what of the package is run, from the seconds that one client's KS takes."""
    n, p = len(fleet.drifted), fleet.size.n_parameters
    needed = PEER_BYTES_PER_VALUE * n * p
    if needed > 0.8 * free_bytes:
        n_values = min(p, MAX_PREFIX)
        part = "" if n_values == p else f", each on {n_values / p:.0%} of its parameters"
        return Plan(
            1,
            min(N_SAMPLED, n),
            False,
            n_values,
            f"peer does not fit: needs {needed / 1e9:.0f} GB, {free_bytes / 1e9:.0f} GB are free; "
            f"extrapolated from the KS of {min(N_SAMPLED, n)} clients{part}, the rest counted as 0",
        )
    whole_s = n * ks_s
    if whole_s > limit_s and n > N_SAMPLED:
        return Plan(
            1,
            N_SAMPLED,
            True,
            p,
            f"extrapolated from {N_SAMPLED} clients: KS is timed on {N_SAMPLED} of {n}, all else "
            f"is run (a whole run takes some {whole_s:.0f} s, the limit is {limit_s:.0f} s)",
        )
    most = max(1, int(limit_s // max(whole_s, 1e-9)))
    runs = min(n_runs, most)
    note = (
        "whole runs" if runs == n_runs else f"whole runs, {runs} for the limit of {limit_s:.0f} s"
    )
    return Plan(runs, n, True, p, note)


@dataclass(frozen=True, slots=True)
class Duel:
    """The two sides and what they are given.

    Parameters
    ----------
    fleet : Fleet
    peer_python : Path
        Of the environment that has the package.
    """

    fleet: Fleet
    peer_python: Path

    def ours(self, out: Path) -> Result:
        """Run our side; the group models are left in `out`."""
        return ask_side([sys.executable, "-m", "benchmarks.our_side"], self._task(out))

    def peer(self, out: Path, plan: Plan, known_ks: Sequence[float]) -> Result:
        """Run the package's side, or of its KS what the plan says."""
        task = self._task(out) | {"n_ks": plan.n_ks, "known_ks": known_ks, "only_ks": False}
        if not plan.fits:
            task |= {"only_ks": True, "n_values": plan.n_values}
            task["clients"] = task["clients"][: plan.n_ks]
        return self._ask_peer(task)

    def probe(self) -> float:
        """Return the seconds that the package's KS takes for one client, at least."""
        n_values = min(self.fleet.size.n_parameters, MAX_PREFIX)
        task = self._task(Path()) | {"only_ks": True, "n_values": n_values}
        seconds = self._ask_peer(task | {"clients": task["clients"][:1]})["ks_seconds"][0]
        return float(seconds * self.fleet.size.n_parameters / n_values)

    def _ask_peer(self, task: Result) -> Result:
        if not self.peer_python.exists():
            raise BenchmarkError(f"no {self.peer_python}, `make bench-peer` makes it")
        # -E and -s: nothing of this project's environment may be found there.
        return ask_side([str(self.peer_python), "-E", "-s", str(HERE / "peer_side.py")], task)

    def _task(self, out: Path) -> Result:
        return {
            "reference": str(self.fleet.reference),
            "clients": [str(path) for path in self.fleet.drifted],
            "weights": self.fleet.weights[: len(self.fleet.drifted)],
            "out": str(out),
        }


def run_duel(duel: Duel, plan: Plan, n_runs: int) -> tuple[list[Result], list[Result]]:
    """Run both sides alternately, the package as often as planned; compare what they return."""
    peers, ours = [], []
    with tempfile.TemporaryDirectory() as name:
        folders = {side: Path(name) / side for side in ("peer", "ours")}
        for folder in folders.values():
            folder.mkdir()
        for number in range(1, n_runs + 1):
            tell(f"run {number} of {n_runs}")
            ours.append(duel.ours(folders["ours"]))
            if number <= plan.n_runs:
                peers.append(duel.peer(folders["peer"], plan, ours[-1]["ks"]))
                # What was not timed is what it was given: there is nothing to compare.
                del peers[-1]["ks"][plan.n_ks :]
        check_ks(peers[-1]["ks"], ours[-1]["ks"], n_values=plan.n_values, fleet=duel.fleet)
        for side, results in (("peer", peers), ("ours", ours)):
            if "labels" in results[-1]:
                results[-1]["mean_error"] = check_means(duel.fleet, results[-1], folders[side])
    return peers, ours


def check_ks(
    theirs: Sequence[float], ours: Sequence[float], *, n_values: int, fleet: Fleet
) -> float | None:
    """Return the largest difference of |KS|; the sign of an exact tie is rounding there."""
    if n_values != fleet.size.n_parameters:
        return None
    worst = max(abs(abs(a) - abs(b)) for a, b in zip(theirs, ours, strict=False))
    if not worst <= KS_TOLERANCE:
        raise BenchmarkError(f"|KS| differs by {worst:.1e}, wanted at most {KS_TOLERANCE}")
    return worst


def check_means(fleet: Fleet, result: Result, folder: Path) -> float:
    """Compare a side's group means with sums in float64; the largest error."""
    labels = np.array(result["labels"])
    worst = 0.0
    for group in range(labels.max() + 1):
        rows = np.flatnonzero(labels == group)
        expected = _mean([fleet.drifted[i] for i in rows], [fleet.weights[i] for i in rows])
        worst = max(worst, float(np.abs(_group_mean(folder, group) - expected).max()))
    if not worst <= MEAN_TOLERANCE:
        raise BenchmarkError(
            f"{folder.name}: a group mean is off by {worst:.1e}, wanted at most {MEAN_TOLERANCE}"
        )
    return worst


def _mean(paths: Sequence[Path], weights: Sequence[int]) -> NDArray[np.float64]:
    total = np.zeros(flat(paths[0]).size)
    for path, weight in zip(paths, weights, strict=True):
        total += flat(path).astype(np.float64) * (weight / sum(weights))
    return total


def _group_mean(folder: Path, group: int) -> NDArray[np.float32]:
    raw = folder / f"{group}.f32"
    return np.fromfile(raw, np.float32) if raw.exists() else flat(folder / f"{group}.safetensors")


def cpu_seconds(result: Result, plan: Plan, n_clients: int, n_parameters: int) -> float:
    """Return a run's CPU seconds, with those of the KS that was not run."""
    per_client = statistics.fmean(result["ks_seconds"]) * n_parameters / plan.n_values
    if not plan.fits:
        return n_clients * per_client
    return float(result["cpu_s"] + (n_clients - plan.n_ks) * per_client)


def describe_groups(labels: Sequence[int], families: Sequence[int]) -> str:
    """Say how clients were grouped, and whether a group mixes the two ways they drifted."""
    groups = [[i for i, x in enumerate(labels) if x == g] for g in range(max(labels) + 1)]
    mixed = sum(len({families[i] for i in group}) > 1 for group in groups)
    sizes = ", ".join(str(len(group)) for group in groups)
    shown = f" {list(labels)}" if len(labels) <= 20 else ""
    return f"{len(groups)} of {sizes} clients, {mixed} mix both drifts{shown}"


def tell(text: str) -> None:
    """Report progress."""
    print(f"bench-peer: {text}", file=sys.stderr, flush=True)


def free_bytes() -> int:
    """Return the memory that a new process can have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise BenchmarkError("/proc/meminfo does not say how much memory is free")


def _median(results: Sequence[Result], key: str) -> float:
    return float(statistics.median(result[key] for result in results))


def _row(
    side: str, results: Sequence[Result], cpu_s: Sequence[float], *, extrapolated: bool = False
) -> str:
    spread = f"{statistics.median(cpu_s):.3f} ({min(cpu_s):.3f}-{max(cpu_s):.3f})"
    measured = {
        "process_cpu_s": "-" if extrapolated else f"{_median(results, 'process_cpu_s'):.2f}",
        "wall_s": "-" if extrapolated else f"{_median(results, 'wall_s'):.3f}",
        "over_bytes": f"{_median(results, 'over_bytes') / 2**20:.1f}"
        if "over_bytes" in results[0]
        else "-",
    }
    return " | ".join([f"| {side}", str(len(results)), spread, *measured.values(), ""]).rstrip()


def report(fleet: Fleet, plan: Plan, peers: Sequence[Result], ours: Sequence[Result]) -> bool:
    """Print what was measured; the last line is the verdict. True: the target is met."""
    n, p = len(fleet.drifted), fleet.size.n_parameters
    peer_cpu = [cpu_seconds(result, plan, n, p) for result in peers]
    our_cpu = [float(result["cpu_s"]) for result in ours]
    print(f"{fleet.size}, {n} clients flagged: {plan.note}; load {os.getloadavg()[0]:.1f}")
    print("one thread a side: " + ", ".join(f"{k}=1" for k in ONE_THREAD) + ", one CPU")
    print("libraries, peer: " + _versions(peers[0]) + "; ours: " + _versions(ours[0]))
    print()
    print("| side | runs | CPU s, median (range) | whole process CPU s | wall s | MiB over input |")
    print("|---|---|---|---|---|---|")
    print(_row("peer", peers, peer_cpu, extrapolated=plan.extrapolates(n)))
    print(_row("ours", ours, our_cpu))
    print()
    for side, results in (("peer", peers), ("ours", ours)):
        if "labels" in results[-1]:
            groups = describe_groups(results[-1]["labels"], fleet.families)
            print(f"cohorts, {side}: {groups}; means within {results[-1]['mean_error']:.1e}")
    difference = check_ks(peers[-1]["ks"], ours[-1]["ks"], n_values=plan.n_values, fleet=fleet)
    compared = "not compared" if difference is None else f"within {difference:.1e}"
    seconds = statistics.median(s for result in peers for s in result["ks_seconds"])
    print(f"|KS| of {len(peers[-1]['ks'])} clients: {compared}; peer, one client: {seconds:.3f} s")
    ratio = statistics.median(peer_cpu) / statistics.median(our_cpu)
    target = 100.0 if p >= 1_000_000 else 20.0
    met = ratio >= target
    print(
        f"bench-peer: {'met' if met else 'missed'}, {fleet.size} cpu_ratio={ratio:.1f} "
        f"rss_ratio={_memory_ratio(peers, ours)} target={target:.0f}"
        + (" (extrapolated)" if plan.extrapolates(n) else "")
    )
    return met


def _versions(result: Result) -> str:
    return " ".join(f"{name} {number}" for name, number in result["libraries"].items())


def _memory_ratio(peers: Sequence[Result], ours: Sequence[Result]) -> str:
    if "over_bytes" not in peers[0]:
        return "not-measured"
    return f"{_median(peers, 'over_bytes') / _median(ours, 'over_bytes'):.1f}"


def main(
    size: Annotated[str, typer.Option("--size", help="CLIENTSxPARAMETERS")] = "10x545290",
    peer_python: Annotated[
        Path, typer.Option("--peer-python", help="Python of the package's own environment.")
    ] = Path(".venv-peer/bin/python"),
    runs: Annotated[int, typer.Option("--runs", min=1)] = MAX_RUNS,
    limit_s: Annotated[
        float, typer.Option("--limit-s", min=0, help="Longest time for all runs of the package.")
    ] = 900.0,
    folder: Annotated[Path, typer.Option("--dir", help="Where the fleets lie.")] = HERE / ".data",
) -> None:
    """Compare with fed-clma."""
    try:
        duel = Duel(make_fleet(parse_size(size), folder, progress=True), peer_python.absolute())
        tell("one client's KS, to know how long a run takes")
        plan = make_plan(duel.fleet, duel.probe(), limit_s, free_bytes(), runs)
        tell(plan.note)
        met = report(duel.fleet, plan, *run_duel(duel, plan, runs))
    except (BenchmarkError, NoRoomError, OSError, ValueError) as error:
        print(f"bench-peer: failed, {error}")
        raise typer.Exit(1) from None
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
