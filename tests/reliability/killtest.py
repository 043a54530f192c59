"""Kill the night with SIGKILL at every step and at random times, start it again, compare.

    python -m tests.reliability.killtest --points all --random 40 --seed 1

Every kill meets its own copy of a federation whose round is open with all updates in the inbox. The
night is started again as an operator would, until it lives; then everything that a night decides or
shows has to be that of the undisturbed night: models, tables, sealed inputs, state, ledger, MLflow.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

if TYPE_CHECKING:
    from tests.reliability.cases import Case, Outcome
    from tests.reliability.judge import Facts
    from tests.reliability.site import Site

DOUBLE_KILLS = 0.25
"""Share of the cases in which the restart is killed, too."""

STARTING_S = 6.0
"""What a command needs to import everything, about: kills of commands come that much later."""

PHASES = {
    "seal": r"^seal_round: (rounds|ledger)",
    "stage": r": rounds.*stages",
    "model": r": models",
    "table": r"^commit_round: rounds",
    "commit": r"^commit_round: ledger",
    "run": r"create_run|log_batch|set_terminated",
    "upload": r"logged_model|log_model_artifacts|log_outputs",
    "version": r"create_registered_model|create_model_version",
    "alias": r"alias",
    "files": r"log_artifacts",
    "open": r"^open_round: ledger",
    "result": r": result ",
    "body": r"",
}
"""Parts of the night and what their points look like; the first that fits."""


@contextlib.contextmanager
def _workshop(prefect_api: str | None) -> Iterator[Path]:
    """Provide a folder and a Prefect server; Prefect is imported in here, after its settings."""
    from flows._prefect_server import prefect_server

    folder = Path(tempfile.mkdtemp(prefix="clma-killtest-"))
    os.environ |= {
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
        "MPLCONFIGDIR": str(folder / "matplotlib"),
        "OMP_NUM_THREADS": "1",
    }
    # Killed nights stay Running: they are not for a user's own server.
    os.environ.pop("PREFECT_API_URL", None)
    if prefect_api is not None:
        os.environ["PREFECT_API_URL"] = prefect_api
    try:
        with prefect_server(folder / "prefect"):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _phase(point: str) -> str:
    """Return which part of the night a point belongs to."""
    return next(name for name, pattern in PHASES.items() if re.search(pattern, point))


def _choose(points: Sequence[str], wanted: str, rng: np.random.Generator) -> list[str]:
    """Return all points, or a number of them spread over the phases of the night."""
    if wanted == "all":
        return list(points)
    queues: dict[str, list[str]] = {name: [] for name in PHASES}
    for index in rng.permutation(len(points)):
        queues[_phase(points[index])].append(points[index])
    turns = itertools.zip_longest(*queues.values())
    return [p for turn in turns for p in turn if p is not None][: int(wanted)]


def _cases(
    points: Sequence[str],
    n_random: int,
    n_commands: int,
    night_s: float,
    rng: np.random.Generator,
) -> list[Case]:
    from tests.reliability.cases import Case

    def again() -> tuple[float, ...]:
        return (float(rng.uniform(0.0, night_s)),) if rng.random() < DOUBLE_KILLS else ()

    # Evenly spread, so that no part of the night is left out by chance.
    def spread(n: int, longest_s: float) -> list[float]:
        return [float(i + rng.random()) / n * longest_s for i in range(n)]

    kills: list[tuple[str | None, tuple[float, ...], bool]] = [(p, again(), False) for p in points]
    kills += [(None, (s, *again()), False) for s in spread(n_random, night_s)]
    kills += [(None, (s,), True) for s in spread(n_commands, night_s + STARTING_S)]
    return [Case(number, *kill) for number, kill in enumerate(kills)]


def _run_all(cases: Sequence[Case], template: Site, folder: Path, n_jobs: int) -> Iterator[Outcome]:
    from tests.reliability.cases import run_case

    if n_jobs == 1:
        yield from (run_case(c, template, folder / f"case-{c.number}") for c in cases)
        return
    # Forked before anything has a thread; each worker then forks its own nights.
    with multiprocessing.get_context("fork").Pool(n_jobs) as pool:
        work = [(c, template, folder / f"case-{c.number}") for c in cases]
        yield from pool.imap_unordered(_run_one, work)


def _run_one(work: tuple[Case, Site, Path]) -> Outcome:
    from tests.reliability.cases import run_case

    return run_case(*work)


def main(
    points: Annotated[str, typer.Option(help="'all', or how many of them.")] = "all",
    random_kills: Annotated[int, typer.Option("--random", help="Kills at random times.")] = 40,
    commands: Annotated[int, typer.Option(help="Kills at random times of the whole command.")] = 4,
    seed: Annotated[int, typer.Option(help="Of points, times and double kills.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Nights at the same time.")] = 2,
    only: Annotated[str, typer.Option(help="Points with this text.")] = "",
    phases: Annotated[str, typer.Option(help="Of these, commas between; default: all.")] = "",
    list_points: Annotated[bool, typer.Option("--list", help="Print the points, no kill.")] = False,
    prefect_api: Annotated[str | None, typer.Option(help="Default: a server of its own.")] = None,
    report: Annotated[Path | None, typer.Option(help="JSON file with every case.")] = None,
) -> None:
    """Kill nights and judge what their restarts make of them."""
    started = time.monotonic()
    rng = np.random.default_rng(seed)
    with _workshop(prefect_api) as folder:
        from tests.reliability.verdict import report_of

        template, expected, named, night_s = _prepare(folder)
        if list_points:
            typer.echo("\n".join(named) + f"\n{len(named)} points in a night of {night_s:.1f} s")
            return
        wanted = phases.split(",") if phases else [*PHASES]
        fitting = [n for n in named if only in n and _phase(n) in wanted]
        chosen = _choose(fitting, points, rng)
        cases = _cases(chosen, random_kills, commands, night_s, rng)
        outcomes = _watched(_run_all(cases, template, folder, jobs), expected, len(cases))
        values = report_of(outcomes, expected, _phase)
        if report is not None:
            report.write_text(json.dumps(values))
    figures = values["figures"]
    good = not figures["nights_that_differ"] and figures["kills"] > 0
    words = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in figures.items())
    typer.echo(
        f"killtest {'passed' if good else 'FAILED'}: {words}; "
        f"{len(named)} points, {time.monotonic() - started:.0f} s"
    )
    sys.exit(0 if good else 1)


def _prepare(folder: Path) -> tuple[Site, Facts, list[str], float]:
    """Make what is copied for every kill, and let two nights pass undisturbed.

    Returns
    -------
    the site before the night, its facts after it, names of the points, seconds of a night
    """
    from tests.reliability.cases import run_undisturbed
    from tests.reliability.points import stand_around_everything
    from tests.reliability.processes import answer_of
    from tests.reliability.site import Site
    from tests.reliability.verdict import first_difference

    stand_around_everything()
    template = Site(folder / "template")
    answer_of(template.build, template.folder)
    expected, named, _ = run_undisturbed(template, folder / "first")
    # Again, with everything imported: how long a night takes, and that two nights are equal.
    again, _, night_s = run_undisturbed(template, folder / "second")
    if again != expected:
        raise RuntimeError(f"undisturbed nights differ: {first_difference(again, expected)}")
    return template, expected, named, night_s


def _watched(outcomes: Iterable[Outcome], expected: Facts, n_cases: int) -> list[Outcome]:
    """Tell every outcome as it comes; returns them all."""
    from tests.reliability.verdict import differences

    seen = []
    for outcome in outcomes:
        seen.append(outcome)
        wrong = "; ".join(differences(outcome, expected)) or "as undisturbed"
        number = f"{len(seen)}/{n_cases}"
        typer.echo(f"{number} {outcome.seconds:4.1f} s  {outcome.case.name}: {wrong}")
    return seen


if __name__ == "__main__":
    typer.run(main)
