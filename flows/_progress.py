"""What a person sees of a demo: a line a night, then a table, then where to look."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clma.simulation.fleet import Fleet
from clma.simulation.life import RoundView

__all__ = ["DemoScreen"]


class DemoScreen:
    """Progress on stderr, the result on stdout.

    Parameters
    ----------
    fleet : Fleet
        Holds the truth to show beside what was found.
    federation : str
    """

    def __init__(self, fleet: Fleet, federation: str) -> None:
        self._fleet = fleet
        self._federation = federation
        self._progress = Console(stderr=True, highlight=False)
        self._result = Console(highlight=False)
        self._last: RoundView | None = None
        self._since = time.monotonic()

    def start(self, store: Path, share: Sequence[str]) -> None:
        """Say what is about to happen, and what these plants share that others need not."""
        n = len(self._fleet.client_ids)
        n_drifted = len(self._fleet.drifted_clients)
        self._progress.print(
            f"{self._federation}: {n} plants, {n_drifted} of them will drift "
            f"(recipe {self._fleet.name}); store {store}",
            soft_wrap=True,
        )
        extra = [item for item in share if item not in {"weights", "flag", "examples"}]
        self._progress.print(
            f"these plants share {', '.join(extra)} beside weights, flag and example count: "
            "they are simulated",
            soft_wrap=True,
        )
        self._progress.print("starting Prefect ...")

    def show_round(self, view: RoundView) -> None:
        """Show one night: who drifted, who moved where, how good the models are."""
        drifted = ", ".join(view.flagged) or "nobody"
        moves = ", ".join(f"{c} {a} -> {b}" for c, (a, b) in view.moves.items())
        n_cohorts = len(set(view.cohorts.values()))
        seconds = time.monotonic() - self._since
        self._since = time.monotonic()
        self._progress.print(
            f"round {view.round_num:03d}  F1 stationary {self._mean(view, drifted=False)}, "
            f"drifting {self._mean(view, drifted=True)}  "
            f"({n_cohorts} cohort{'s' * (n_cohorts != 1)}, {seconds:.1f} s)  "
            f"drift flags: {drifted}" + (f"; moved: {moves}" if moves else ""),
            soft_wrap=True,
        )
        self._last = view

    def show_result(self, facts: Mapping[str, Any]) -> None:
        """Show every plant's cohort beside the truth, the figures, and where to look next."""
        if self._last is not None:
            self._result.print(self._table(self._last))
        for label, key in (
            ("macro-F1, stationary plants", "stationary_f1"),
            ("macro-F1, drifting plants", "drifted_f1"),
        ):
            self._result.print(
                f"{label}: {_figure(facts[key])} over rounds 4 to {facts['rounds']}, "
                f"{_figure(facts['final_' + key])} in the last"
            )
        self._result.print(
            f"cohorts: {facts['n_cohorts']}, adjusted Rand index against the truth "
            f"{_figure(facts['ari'])}"
        )
        self._result.print(
            f"drifts flagged in their round: {_figure(facts['detector_recall'])}, "
            f"false alarms per plant and round: {_figure(facts['false_alarm_rate'])}"
        )
        self._result.print(
            f"\n{facts['rounds']} rounds in {facts['seconds']:.0f} s. Where to look:\n"
            f"  make ui                                   Prefect and MLflow in the browser\n"
            f"  {Path(facts['store']) / 'rounds'}   every decision, as Parquet\n"
            f"  .venv/bin/clma status --store {facts['store']} --federation {facts['federation']}",
            soft_wrap=True,
        )

    def _table(self, view: RoundView) -> Table:
        table = Table(title=f"{self._federation} after round {view.round_num}")
        for column in ("plant", "true concept", "cohort", "macro-F1"):
            table.add_column(column)
        for score in view.scores:
            concept = self._fleet.concept(score.client_id, view.round_num)
            cohort = view.cohorts[score.client_id]
            table.add_row(score.client_id, concept, cohort, _figure(score.f1))
        return table

    def _mean(self, view: RoundView, *, drifted: bool) -> str:
        wanted = set(self._fleet.drifted_clients)
        values = [
            s.f1 for s in view.scores if s.f1 is not None and (s.client_id in wanted) is drifted
        ]
        return _figure(sum(values) / len(values) if values else None)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
