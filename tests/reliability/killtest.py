"""Kill the night with SIGKILL at every step and at random times, start it again, compare.

    python -m tests.reliability.killtest --points all --random 40 --seed 1

Every kill meets its own copy of a federation whose round is open with all updates in the inbox. The
night is started again as an operator would, until it lives; then everything that a night decides or
shows has to be that of the undisturbed night: models, tables, sealed inputs, state, ledger, MLflow.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from tests.reliability.cases import Case, Outcome
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


def _differences(outcome: Outcome, expected: dict[str, Any]) -> list[str]:
    """Return what is not as it has to be, one line each."""
    found = [f"last exit code {outcome.codes[-1]}"] if outcome.codes[-1] else []
    if outcome.case.point and not outcome.n_kills:
        found.append("the point was not reached")
    found += list(outcome.failed_polls[:3])
    if outcome.trouble:
        return [*found, f"cannot be judged: {outcome.trouble.splitlines()[-1]}"]
    for part, wanted in expected.items():
        got = outcome.facts[part]
        if got != wanted:
            found.append(f"{part}: {_first_difference(got, wanted)}")
    return found


def _first_difference(got: Any, wanted: Any) -> str:
    if isinstance(got, dict) and isinstance(wanted, dict):
        keys = [k for k in {**wanted, **got} if got.get(k) != wanted.get(k)]
        return f"{keys[0]}: {_first_difference(got.get(keys[0]), wanted.get(keys[0]))}"
    if isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        return next(_first_difference(g, w) for g, w in zip(got, wanted, strict=True) if g != w)
    return f"{str(got)[:300]}, wanted {str(wanted)[:300]}"


def _decided(facts: dict[str, Any]) -> str:
    """Return one digest of all that a night decides."""
    parts = [facts[part] for part in ("files", "accepted", "state", "ledger")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _figures(outcomes: Sequence[Outcome], expected: dict[str, Any]) -> dict[str, int]:
    def extra(part: str, facts: dict[str, Any]) -> int:
        n_extra: int = sum(facts[part].values()) - sum(expected[part].values())
        return max(0, n_extra)

    accepted = {tuple(update) for update in expected["accepted"]}
    facts = [o.facts for o in outcomes if o.facts]
    return {
        "kills": sum(o.n_kills for o in outcomes),
        "restarts": sum(o.n_restarts for o in outcomes),
        "lost_accepted_updates": sum(
            len(accepted - {tuple(u) for u in f["accepted"]}) for f in facts
        ),
        "double_versions": sum(extra("versions", f) for f in facts),
        "double_runs": sum(max(0, len(f["runs"]) - len(expected["runs"])) for f in facts),
        "distinct_hashes": len({_decided(f) for f in [*facts, expected]}),
        "leftovers": sum(len(f["leftovers"]) for f in facts),
        "polls": sum(o.n_polls for o in outcomes),
        "failed_polls": sum(len(o.failed_polls) for o in outcomes),
        "nights_that_differ": sum(bool(_differences(o, expected)) for o in outcomes),
    }


def _report(
    figures: dict[str, int], outcomes: Sequence[Outcome], expected: dict[str, Any]
) -> dict[str, Any]:
    cases = [
        {
            "name": outcome.case.name,
            "phase": _phase(outcome.case.point) if outcome.case.point else "random",
            "codes": outcome.codes,
            "differences": _differences(outcome, expected),
        }
        for outcome in outcomes
    ]
    return {"figures": figures, "cases": cases}


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
    list_points: Annotated[bool, typer.Option("--list", help="Print the points, no kill.")] = False,
    prefect_api: Annotated[str | None, typer.Option(help="Default: a server of its own.")] = None,
    report: Annotated[Path | None, typer.Option(help="JSON file with every case.")] = None,
) -> None:
    """Kill nights and judge what their restarts make of them."""
    started = time.monotonic()
    rng = np.random.default_rng(seed)
    with _workshop(prefect_api) as folder:
        from tests.reliability.cases import run_undisturbed
        from tests.reliability.points import stand_around_everything
        from tests.reliability.processes import answer_of
        from tests.reliability.site import Site

        stand_around_everything()
        template = Site(folder / "template")
        answer_of(template.build, template.folder)
        expected, named, _ = run_undisturbed(template, folder / "first")
        # Again, with everything imported: how long a night takes, and that two nights are equal.
        again, _, night_s = run_undisturbed(template, folder / "second")
        if again != expected:
            raise RuntimeError(f"undisturbed nights differ: {_first_difference(again, expected)}")
        if list_points:
            typer.echo("\n".join(named) + f"\n{len(named)} points in a night of {night_s:.1f} s")
            return
        chosen = _choose([n for n in named if only in n], points, rng)
        cases = _cases(chosen, random_kills, commands, night_s, rng)
        outcomes = []
        for outcome in _run_all(cases, template, folder, jobs):
            outcomes.append(outcome)
            wrong = _differences(outcome, expected)
            typer.echo(
                f"{len(outcomes)}/{len(cases)} {outcome.seconds:4.1f} s  {outcome.case.name}: "
                f"{'; '.join(wrong) or 'as undisturbed'}"
            )
        figures = _figures(outcomes, expected)
        if report is not None:
            report.write_text(json.dumps(_report(figures, outcomes, expected)))
    good = not figures["nights_that_differ"] and figures["kills"] > 0
    words = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in figures.items())
    typer.echo(
        f"killtest {'passed' if good else 'FAILED'}: {words}; "
        f"{len(named)} points, {time.monotonic() - started:.0f} s"
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(main)
