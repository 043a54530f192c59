"""The files of a round's run: tables as stored and as text, figures, the configuration."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from clma.config import FederationConfig, render_config
from clma.report.figures import MAX_ROUNDS, cohort_color, cohort_sizes, metric_curves, png_bytes
from clma.report.heatmap import cohort_heatmap, shown_clients
from clma.rows import AssignmentRow, CohortingRow, CohortRow, DriftRow, RoundDecision, UpdateRow
from tasks.tracking.history import History
from tasks.tracking.runs import OpenRun
from tasks.tracking.summary import mean_losses

__all__ = ["Curves", "draw_curves", "draw_figures", "log_files", "round_files", "table_texts"]

Curves = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Metric to name of a client or cohort to round to value."""

_ROWS: Mapping[str, type[Any]] = {
    "updates": UpdateRow,
    "drift": DriftRow,
    "cohorting": CohortingRow,
    "assignments": AssignmentRow,
    "cohorts": CohortRow,
}


def log_files(run: OpenRun, files: Mapping[str, bytes]) -> None:
    """Log files by their path in the run; a file that is there already is written over."""
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        run.experiment.client.log_artifacts(run.run_id, folder)


def table_texts(decision: RoundDecision) -> dict[str, bytes]:
    """Return a decision's tables as CSV, which MLflow shows as tables (Parquet it does not)."""
    return {
        name: _csv([f.name for f in fields(row)], [asdict(r) for r in getattr(decision, name)])
        for name, row in _ROWS.items()
    }


def round_files(history: History, round_num: int, config: FederationConfig) -> dict[str, bytes]:
    """Return tables and configuration of a round by their path in its run."""
    texts = table_texts(history.decision(round_num))
    return {
        "federation.toml": render_config(config).encode(),
        **{f"tables/{name}.parquet": data for name, data in history.tables(round_num).items()},
        **{f"tables/{name}.csv": data for name, data in texts.items()},
    }


def draw_figures(history: History, round_num: int, federation: str) -> dict[str, bytes]:
    """Draw the figures of a round as PNG, by their path in its run.

    Parameters
    ----------
    history : History
    round_num : int
        The newest round that they show.
    federation : str
    """
    rounds = [r for r in history.rounds if r <= round_num][-MAX_ROUNDS:]
    newest = history.decision(round_num)
    figures = {}
    if newest.assignments:
        clients = {row.client_id for row in newest.assignments}
        shown = shown_clients(clients, history.clients_with_events(rounds))
        wanted = shown if len(shown) < len(clients) else None
        figures["cohort_heatmap"] = cohort_heatmap(
            {r: history.assignments(r, wanted) for r in rounds},
            {r: history.drift(r, wanted) for r in rounds},
            title=f"{federation}: cohorts up to round {round_num}{_share(shown, clients)}",
        )
        cohorts = {r: history.cohorts(r) for r in rounds}
        figures["cohort_sizes"] = cohort_sizes(cohorts, title=f"{federation}: size of cohorts")
    losses = _losses(history, rounds)
    if losses:
        colors = {c: cohort_color(c) for c in losses}
        title = f"{federation}: mean loss of cohorts"
        figures["cohort_loss"] = metric_curves(losses, title=title, label="loss", colors=colors)
    return {f"figures/{name}.png": png_bytes(figure) for name, figure in figures.items()}


def _share(shown: Set[str], clients: Set[str]) -> str:
    few = len(shown) < len(clients)
    return f" ({len(shown):,} of {len(clients):,} clients)" if few else ""


def _losses(history: History, rounds: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return the mean loss of each cohort's members by round, where losses are shared."""
    losses: dict[str, dict[int, float]] = {}
    for r in filter(history.has_losses, rounds):
        means = mean_losses(history.assignments(r), history.drift(r))
        for cohort_id, loss in means.items():
            losses.setdefault(cohort_id, {})[r] = loss
    return losses


def draw_curves(curves: Curves, federation: str) -> dict[str, bytes]:
    """Draw one figure for each metric that has values, as PNG, by its path in a run."""
    return {
        f"figures/{_file_name(metric)}.png": png_bytes(
            metric_curves(series, title=f"{federation}: {metric}", label=metric)
        )
        for metric, series in curves.items()
        if any(series.values())
    }


def _csv(columns: list[str], rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return out.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {number:g}" for key, number in sorted(value.items()))
    if isinstance(value, tuple):
        return "; ".join(v if isinstance(v, str) else f"{v[0]} {v[1]:g}" for v in value)
    return "" if value is None else str(value)


def _file_name(metric: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in metric)
