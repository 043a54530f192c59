"""What a night costs beside the mathematics: fleets of growing size, and a year of nights.

    python benchmarks/overhead.py --clients 10,100,1000,10000
    python benchmarks/overhead.py --history 365

The first measures one night of each size, with a small model and nobody drifted: step by step in
this process, and as the whole command ``python -m flows.nightly --now`` with a Prefect server and
MLflow in SQLite. The second makes a federation with as many committed nights and compares its next
nights with those of a federation that has just begun. The updates are written as files, as a
foreign program would write them; the time for that is not counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import serialize_tensors
from clma.records import UpdateMessage
from clma.round import run_round
from clma.updates.message import message_bytes
from clma.updates.signing import SigningKey, sign_message

ROOT = Path(__file__).parents[1]
STEPS = ("open", "seal", "decide", "commit", "open next")
HISTORY_CLIENTS = 50
HISTORY_NIGHTS = 7
"""Nights that are timed on either side of the comparison."""

MAX_SECONDS = 300.0
"""Of a whole night, whatever the size of the fleet."""

MAX_RATIO = 1.25
"""Of a night after the history to one without: equal nights differ as much on a busy machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """One fleet.

    Parameters
    ----------
    n_clients, n_parameters : int
    signed : bool
        Every update carries an ed25519 signature, which the seal verifies.
    """

    n_clients: int
    n_parameters: int
    signed: bool

    @property
    def name(self) -> str:
        """As the table shows it."""
        return f"{self.n_clients:,} x {self.n_parameters:,}" + (", signed" if self.signed else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Night:
    """What one night took, in seconds; memory in MiB.

    Parameters
    ----------
    steps : dict of str to float
        In this process, by step.
    peak : float
        Most memory that the process held.
    whole : float or None
        The command from start to end, None where it was left out.
    tasks : dict of str to float
        Seconds in Prefect's task runs, by task.
    n_task_runs : int
    command_peak : float or None
    """

    steps: dict[str, float]
    peak: float
    whole: float | None = None
    tasks: dict[str, float] = dataclasses.field(default_factory=dict)
    n_task_runs: int = 0
    command_peak: float | None = None


def found_fleet(folder: Path, size: Size) -> tuple[Federation, dict[str, SigningKey]]:
    """Make a federation with its first round open."""
    base = folder / "base.safetensors"
    base.write_bytes(serialize_tensors({"w": np.zeros(size.n_parameters, np.float32)}))
    ids = [f"plant-{i:05d}" for i in range(size.n_clients)]
    keys = {i: SigningKey.from_seed(hashlib.sha256(i.encode()).digest()) for i in ids}
    keys = keys if size.signed else {}
    config = preset_config(
        "overhead", identity={"updates": "signed" if size.signed else "unsigned"}
    )
    federation = Federation.create(
        folder / "store", config, base, ids, public_keys={i: k.public for i, k in keys.items()}
    )
    open_next_round(federation, now=dt.datetime.now(dt.UTC))
    return federation, keys


def send_all(federation: Federation, size: Size, keys: dict[str, SigningKey]) -> None:
    """Write every client's update of the open round into the inbox."""
    state = federation.state()
    rng = np.random.default_rng(state.round_num)
    for client_id, client in state.clients.items():
        noise = rng.normal(scale=0.01, size=size.n_parameters).astype(np.float32)
        tensors = serialize_tensors({"w": noise})
        message = UpdateMessage(
            federation.name,
            client_id,
            state.round_num,
            client.serving_digest,
            n_examples=100,
            drift_flag=False,
            tensors_sha256=hashlib.sha256(tensors).hexdigest(),
            created_at=dt.datetime.now(dt.UTC).isoformat(),
        )
        if client_id in keys:
            message = sign_message(message, keys[client_id])
        path = Path(federation.store.url) / update_key(state.round_num, client_id, "update.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".safetensors").write_bytes(tensors)
        path.write_bytes(message_bytes(message))


def time_steps(store: str) -> dict[str, float]:
    """Close the open round in this process, step by step; return seconds by step."""
    seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(step: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds[step] = time.perf_counter() - started

    now = dt.datetime.now(dt.UTC)
    with timed("open"):
        federation = Federation.open(store)
    with timed("seal"):
        sealed = federation.seal_round(now=now, force=True)
    with timed("decide"):
        outcome = run_round(
            federation.state_at_seal(sealed.round_num),
            sealed,
            federation.config_at_seal(sealed.round_num),
            open_tensors=federation.open_tensors,
            save_model=federation.add_model,
        )
    with timed("commit"):
        federation.commit_round(outcome.decision, outcome.state, now=now)
    with timed("open next"):
        open_next_round(federation, now=now)
    return seconds


def measure_night(size: Size, whole: bool) -> Night:
    """Measure the second night of a fleet in this process, and a first one as the whole command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation, keys = found_fleet(folder, size)
        send_all(federation, size, keys)
        close_round(federation, now=dt.datetime.now(dt.UTC), force=True)
        send_all(federation, size, keys)
        steps = time_steps(federation.store.url)
        night = Night(steps, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        if whole:
            (folder / "command").mkdir()
            night = measure_command(folder / "command", size, night)
        return night


def measure_command(folder: Path, size: Size, night: Night) -> Night:
    """Run ``flows.nightly`` with a Prefect server and MLflow of its own, both up before.

    The fleet is another one: of a federation with rounds that MLflow lacks they are published, too.
    """
    from flows._prefect_server import prefect_server
    from tasks.tracking import resolve_tracking
    from tasks.tracking.runs import open_experiment

    federation, keys = found_fleet(folder, size)
    send_all(federation, size, keys)
    tracking = resolve_tracking(folder)
    open_experiment(tracking, "tables are made")
    with prefect_server(folder / "prefect") as api:
        command = [
            *(sys.executable, "-m", "flows.nightly", "--now", "--store", federation.store.url),
            *("--federation", federation.name, "--tracking-uri", tracking.uri),
        ]
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        runs = task_runs(api)
    tasks: Counter[str] = Counter()
    for run in runs:
        tasks[run["task_key"].rpartition("-")[0].rpartition(".")[2]] += run["total_run_time"]
    return dataclasses.replace(
        night,
        whole=seconds,
        tasks=dict(tasks),
        n_task_runs=len(runs),
        command_peak=usage.ru_maxrss / 1024,
    )


def task_runs(api: str) -> list[dict[str, Any]]:
    """Return all task runs that a Prefect server knows."""
    runs: list[dict[str, Any]] = []
    while True:
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{api}/task_runs/filter",
            data=json.dumps({"limit": 200, "offset": len(runs)}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
            page = json.load(answer)
        if not page:
            return runs
        runs += page


def history_nights(n_nights: int) -> tuple[list[float], list[float]]:
    """Return the seconds of a young federation's nights and of an old one's, in pairs."""
    size = Size(HISTORY_CLIENTS, 100, signed=False)
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / "young", Path(name) / "old"]
        fleets = []
        for folder in folders:
            folder.mkdir()
            fleets.append(found_fleet(folder, size))
        young, old = (fleet for fleet, _ in fleets)
        for number in range(n_nights):
            send_all(old, size, {})
            close_round(old, now=dt.datetime.now(dt.UTC), force=True)
            if sys.stderr.isatty() and number % 10 == 0:
                print(f"\rnight {number}", end="", file=sys.stderr)
        send_all(young, size, {})
        close_round(young, now=dt.datetime.now(dt.UTC), force=True)
        pairs = []
        for _ in range(HISTORY_NIGHTS):
            pair = []
            for federation in (young, old):
                send_all(federation, size, {})
                pair.append(sum(time_steps(federation.store.url).values()))
            pairs.append(pair)
        return [p[0] for p in pairs], [p[1] for p in pairs]


def _alone(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def table(sizes: Sequence[Size], nights: Sequence[Night]) -> str:
    """Lay the nights out as Markdown, one line a size."""
    head = ["clients x parameters", *STEPS, "sum", "MiB", "whole command", "MiB", "task runs"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for size, night in zip(sizes, nights, strict=True):
        cells = [size.name, *(f"{night.steps[s]:.2f}" for s in STEPS)]
        cells += [f"{sum(night.steps.values()):.2f}", f"{night.peak:.0f}"]
        cells += ["-"] * 3 if night.whole is None else _command_cells(night)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _command_cells(night: Night) -> list[str]:
    return [f"{night.whole:.1f}", f"{night.command_peak:.0f}", str(night.n_task_runs)]


def task_table(sizes: Sequence[Size], nights: Sequence[Night]) -> str:
    """Lay the seconds of the tasks out as Markdown, one line a task."""
    names = sorted({task for night in nights for task in night.tasks})
    lines = ["| task | " + " | ".join(s.name for s in sizes) + " |"]
    lines.append("|---|" + "---:|" * len(sizes))
    for name in names:
        cells = [f"{n.tasks[name]:.2f}" if name in n.tasks else "-" for n in nights]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(
    clients: Annotated[str, typer.Option("--clients", help="Sizes of the fleets.")] = (
        "10,100,1000,10000"
    ),
    parameters: Annotated[int, typer.Option("--parameters", help="Of the model.")] = 10_000,
    signed: Annotated[bool, typer.Option("--signed", help="Updates are signed.")] = False,
    whole: Annotated[
        bool, typer.Option("--whole/--steps-only", help="Run the whole command, too.")
    ] = True,
    history: Annotated[
        int | None, typer.Option("--history", help="Compare nights after so many with the second.")
    ] = None,
) -> None:
    """Measure what a night costs beside the mathematics."""
    if history is not None:
        young, old = _alone(history_nights, history)
        early, late = statistics.median(young), statistics.median(old)
        ratio = statistics.median(b / a for a, b in zip(young, old, strict=True))
        print("| night | median seconds |\n|---|---:|")
        print(f"| 2 | {early:.3f} |\n| {history + 1} | {late:.3f} |\n")
        text = f"night {history + 1} takes {ratio:.2f} times night 2, wanted at most {MAX_RATIO}"
        _end(ratio <= MAX_RATIO, text)
    sizes = [Size(int(n), parameters, signed) for n in clients.split(",")]
    nights = [_alone(measure_night, size, whole) for size in sizes]
    print(table(sizes, nights))
    if whole:
        print("\nSeconds in Prefect's task runs:\n\n" + task_table(sizes, nights))
    largest, night = sizes[-1], nights[-1]
    seconds = sum(night.steps.values()) if night.whole is None else night.whole
    print()
    runs = f" and {night.n_task_runs} task runs" if whole else ""
    text = f"a night of {largest.name} takes {seconds:.1f} s{runs}, wanted at most"
    _end(seconds <= MAX_SECONDS, f"{text} {MAX_SECONDS:.0f} s")


def _end(met: bool, text: str) -> NoReturn:
    """Print the verdict and end with the exit code that says the same."""
    print(f"overhead: {'met' if met else 'missed'}: {text}")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command(epilog="Example: python benchmarks/overhead.py --clients 100,1000")(main)
    app()
