"""Cells of a comparison as MLflow runs: one run a cell, however often it is published."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean

from mlflow.entities import Metric

from clma.simulation.cells import FIGURES, CellResult, RoundRow
from tasks.mlflow_pages import cells_view
from tasks.tracking.history import Times
from tasks.tracking.location import Tracking
from tasks.tracking.names import TAG_CELL, TAG_METHOD, TAG_SCENARIO, TAG_SEED
from tasks.tracking.outage import outages_in_one_line
from tasks.tracking.runs import (
    Experiment,
    OpenRun,
    RunSpec,
    claim_experiment,
    open_experiment,
    open_run,
    published_keys,
)

__all__ = ["publish_cell", "published_cells", "round_metrics_of"]

_IDENTITY = "comparison"
_LATER = "finished cells are kept, the same command publishes them later"
_MAX_METRICS = 500
"""Of one call; MLflow takes 1000."""


def published_cells(tracking: Tracking, name: str) -> frozenset[str]:
    """Return the identities of the cells that are complete in a comparison's experiment.

    Raises
    ------
    TrackingAwayError
        If a server does not answer.
    ConflictError
        If the experiment holds the rounds of a federation.
    """
    with outages_in_one_line(tracking, _LATER):
        return frozenset(key.rpartition("/")[2] for key in published_keys(_open(tracking, name)))


def publish_cell(tracking: Tracking, name: str, identity: str, result: CellResult) -> str:
    """Write a cell's settings and figures to its run, and its curves by round.

    Parameters
    ----------
    tracking : Tracking
    name : str
        Of the experiment.
    identity : str
        What the cell's run is found by, see `clma.simulation.cells.identity`.
    result : CellResult

    Returns
    -------
    str
        Id of the run.

    Raises
    ------
    TrackingAwayError
        If a server does not answer.
    ConflictError
        If the experiment holds the rounds of a federation.
    """
    cell, now = result.cell, int(time.time() * 1000)
    times = Times(now - int(1000 * result.row.seconds), now, now)
    spec = RunSpec(f"{name}/{identity}", cell.shown, times)
    tags = {
        TAG_CELL: identity,
        TAG_SCENARIO: cell.scenario,
        TAG_METHOD: cell.method,
        TAG_SEED: str(cell.seed),
    }
    figures = {figure: getattr(result.row, figure) for figure in FIGURES}
    known = {figure: float(value) for figure, value in figures.items() if value is not None}
    n_rounds = max(row.round_num for row in result.rounds)
    with outages_in_one_line(tracking, _LATER), open_run(_open(tracking, name), spec, tags) as run:
        run.log_params(
            {
                "scenario": cell.scenario,
                "method": cell.method,
                "seed": str(cell.seed),
                "rounds": str(n_rounds),
                **dict(setting.split("=", 1) for setting in cell.settings),
            }
        )
        _log_rounds(run, round_metrics_of(result.rounds), now)
        run.log_metrics(known, step=n_rounds, at=now)
    return run.run_id


def round_metrics_of(rounds: Sequence[RoundRow]) -> dict[int, dict[str, float]]:
    """Return what a run shows as curves, by round: F1, cohorts, drift flags."""
    by_round: dict[int, list[RoundRow]] = {}
    for row in rounds:
        by_round.setdefault(row.round_num, []).append(row)
    return {round_num: _metrics_of(rows) for round_num, rows in sorted(by_round.items())}


def _metrics_of(rows: Sequence[RoundRow]) -> dict[str, float]:
    groups = {
        "f1/stationary": [r.f1 for r in rows if not r.drifting and r.f1 is not None],
        "f1/drifting": [r.f1 for r in rows if r.drifting and r.f1 is not None],
    }
    metrics = {name: fmean(values) for name, values in groups.items() if values}
    metrics["cohorts"] = float(len({r.cohort for r in rows if r.cohort is not None}))
    metrics["drift_flags"] = float(sum(bool(r.flagged) for r in rows))
    return metrics


def _log_rounds(run: OpenRun, metrics: Mapping[int, Mapping[str, float]], at: int) -> None:
    """Log curves; of a run that an earlier attempt left, what it lacks or has other values of."""
    client, names = run.experiment.client, sorted({n for m in metrics.values() for n in m})
    logged = {
        (name, point.step, point.value)
        for name in (() if run.created else names)
        for point in client.get_metric_history(run.run_id, name)
    }
    new = [
        Metric(name, value, at, round_num)
        for round_num, values in metrics.items()
        for name, value in values.items()
        if (name, round_num, value) not in logged
    ]
    for start in range(0, len(new), _MAX_METRICS):
        client.log_batch(run.run_id, metrics=new[start : start + _MAX_METRICS])


def _open(tracking: Tracking, name: str) -> Experiment:
    experiment = open_experiment(tracking, name, view=cells_view(FIGURES))
    claim_experiment(experiment, _IDENTITY)
    return experiment
