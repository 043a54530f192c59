"""A case: a copy of the federation, a night that is killed, restarts until one lives, a verdict."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from flows.nightly import nightly
from tasks.tracking.models import _code as code_of_a_version
from tests.reliability.judge import Facts, facts_of
from tests.reliability.points import KillPoints, arm, reach
from tests.reliability.processes import answer_of, import_all, killed, start
from tests.reliability.reader import read_until
from tests.reliability.site import NAME, Site

__all__ = ["Case", "Outcome", "run_case", "run_undisturbed"]

ROOT = Path(__file__).parents[2]
KILLED = -9
END = "the night is over"


@dataclass(frozen=True, slots=True)
class Case:
    """What to do to one night.

    Parameters
    ----------
    number : int
    point : str or None
        Where the night dies by itself.
    killed_after_s : tuple of float
        Seconds after which the night (without a point), then its restarts are killed.
    as_command : bool
        Start the command that an operator starts, with all its imports.
    """

    number: int
    point: str | None = None
    killed_after_s: tuple[float, ...] = ()
    as_command: bool = False

    @property
    def name(self) -> str:
        """What the case is called in the output."""
        times = ", ".join(f"{s:.2f} s" for s in self.killed_after_s)
        again = f"; restart killed after {times}" if times else ""
        what = "command" if self.as_command else "night"
        return f"{self.point}{again}" if self.point else f"{what} killed after {times}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Parameters
    ----------
    case : Case
    codes : tuple of int
        Of the night and its restarts.
    facts : mapping
        See `facts_of`; empty if they cannot even be read.
    n_polls : int
    failed_polls : tuple of str
        Of the reader.
    trouble : str
        Why there are no facts.
    seconds : float
    """

    case: Case
    codes: tuple[int, ...]
    facts: Facts
    n_polls: int
    failed_polls: tuple[str, ...]
    trouble: str
    seconds: float

    @property
    def n_kills(self) -> int:
        """Kills that met a living night."""
        return self.codes.count(KILLED)

    @property
    def n_restarts(self) -> int:
        """Nights after the first one."""
        return len(self.codes) - 1


def run_undisturbed(template: Site, folder: Path) -> tuple[Facts, list[str], float]:
    """Run a night that nothing happens to.

    Returns
    -------
    facts, names of the points in the order of the night, seconds
    """
    site = template.copy(folder)
    record = folder / "points"

    def night() -> tuple[float, list[str]]:
        arm(KillPoints(record=record))
        started = time.monotonic()
        _close_round(site)
        return time.monotonic() - started, [*sys.modules]

    seconds, modules = answer_of(night, folder)
    import_all(modules)
    code_of_a_version("")
    facts: Facts = answer_of(lambda: facts_of(site), folder)
    return facts, record.read_text().splitlines(), seconds


def run_case(case: Case, template: Site, folder: Path) -> Outcome:
    """Kill a night, start it again until it lives, and look at what it came to."""
    started = time.monotonic()
    site = template.copy(folder)
    stop, report = folder / "stop", folder / "polls.json"
    reader = start(lambda: read_until(stop, site, report), folder)
    codes = _nights(case, site)
    stop.touch()
    n_polls, failures = json.loads(report.read_text()) if killed(reader) == 0 else (0, ["died"])
    facts: Facts = {}
    trouble = ""
    try:
        facts = answer_of(lambda: facts_of(site), folder)
    except RuntimeError as error:
        trouble = str(error)
    shutil.rmtree(folder)
    seconds = time.monotonic() - started
    return Outcome(case, codes, facts, n_polls, tuple(failures), trouble, seconds)


def _nights(case: Case, site: Site) -> tuple[int, ...]:
    """Start the night as often as it is killed, and once more."""
    times: list[float | None] = [*([None] if case.point else []), *case.killed_after_s]
    night = _command if case.as_command else _night
    codes = [killed(start(lambda: night(site, case.point), site.folder), times.pop(0))]
    while codes[-1] == KILLED:
        after_s = times.pop(0) if times else None
        codes.append(killed(start(lambda: night(site), site.folder), after_s))
    return tuple(codes)


def _night(site: Site, point: str | None = None) -> None:
    arm(KillPoints(point))
    _close_round(site)


def _close_round(site: Site) -> None:
    """Do what ``python -m flows.nightly --now`` does once it has a Prefect server."""
    nightly(str(site.store), NAME, now=True, tracking_uri=site.tracking.uri)
    reach(END)


def _command(site: Site, _point: str | None = None) -> None:
    """Become the command that an operator starts."""
    arguments = ["--store", str(site.store), "--federation", NAME, "--now"]
    os.chdir(ROOT)
    os.environ["TMPDIR"] = str(site.folder / "tmp")
    command = [sys.executable, "-m", "flows.nightly", *arguments]
    os.execv(sys.executable, [*command, "--tracking-uri", site.tracking.uri])  # noqa: S606
