"""What a comparison is asked for; neither Prefect nor MLflow is needed here.

Examples
--------
>>> request = ComparisonRequest(("plant/stagger",), ("clma", "fedavg"), (0, 1), "/tmp/side-by-side")
>>> [cell.shown for cell in request.cells][:2]
['plant/stagger clma seed 0', 'plant/stagger fedavg seed 0']
>>> request.experiment
'compare-side-by-side'
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clma.config import GivenCohorts, preset_config, requirements
from clma.errors import InvalidConfigError
from clma.simulation.cell_scenario import check_scenario
from clma.simulation.cells import Cell

__all__ = ["ComparisonRequest", "parse_names", "parse_seeds"]


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """Methods x scenarios x seeds, and where they go.

    Parameters
    ----------
    scenarios, methods : tuple of str
    seeds : tuple of int, >= 0
    out : str
        Folder of results; an earlier comparison there goes on.
    data_dir : str or None
        Folder of recorded data.
    n_rounds : int, >= 1, or None
        None: each scenario's own.
    settings : tuple of str
        ``section.key=value`` over every method's preset.
    """

    scenarios: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    out: str
    data_dir: str | None = None
    n_rounds: int | None = None
    settings: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells; every method has a first seed before any has a second."""
        return tuple(
            Cell(scenario, method, seed, self.n_rounds, self.settings)
            for seed in self.seeds
            for scenario in self.scenarios
            for method in self.methods
        )

    @property
    def experiment(self) -> str:
        """Name in MLflow."""
        return f"compare-{Path(self.out).resolve().name}"

    @property
    def command(self) -> str:
        """The command that makes the comparison again."""
        words = ["python", "-m", "flows.compare", "--scenarios", ",".join(self.scenarios)]
        words += ["--methods", ",".join(self.methods), "--seeds", ",".join(map(str, self.seeds))]
        words += [] if self.n_rounds is None else ["--rounds", str(self.n_rounds)]
        words += [word for setting in self.settings for word in ("--set", setting)]
        words += [] if self.data_dir is None else ["--data-dir", self.data_dir]
        return shlex.join([*words, "--out", self.out])

    def check(self) -> None:
        """Raise InvalidConfigError if anything is unknown; says what is known."""
        if not self.cells or min(self.seeds) < 0:
            raise InvalidConfigError(
                f"{len(self.scenarios)} scenarios, {len(self.methods)} methods, seeds "
                f"{list(self.seeds)}: wanted at least one of each, and seeds >= 0"
            )
        if self.data_dir is not None and not Path(self.data_dir).is_dir():
            raise InvalidConfigError(f"no folder {self.data_dir}, wanted one of recorded data")
        for scenario in self.scenarios:
            check_scenario(scenario)
        for method in self.methods:
            _check_method(method, self.settings)


def parse_names(text: str) -> tuple[str, ...]:
    """Read names with commas or spaces between them; each counts once."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds as ``100:105`` (without the end) or ``0,3,7``, or both; each counts once.

    Raises
    ------
    InvalidConfigError
        If there is none, or it is something else.
    """
    try:
        seeds = tuple(dict.fromkeys(_spelled_out(parse_names(text))))
    except ValueError:
        seeds = ()
    if not seeds:
        raise InvalidConfigError(f"seeds {text!r}, wanted FIRST:END with FIRST < END, or a list")
    return seeds


def _spelled_out(parts: Sequence[str]) -> Iterable[int]:
    for part in parts:
        first, colon, end = part.partition(":")
        yield from range(int(first), int(end) if colon else int(first) + 1)


def _check_method(method: str, settings: tuple[str, ...]) -> None:
    # As a simulated federation is founded: it shares what its method needs, and knows the truth.
    share = {"weights", "flag", "examples", *requirements(method)}
    more: dict[str, Any] = {"privacy": {"share": sorted(share)}}
    if method == "oracle":
        schedule = [GivenCohorts(from_round=1, labels={}).model_dump()]
        more["cohorting"] = {"method": "given", "schedule": schedule}
    preset_config("comparison", method, overrides=settings, **more)
