"""Addresses of pages in MLflow's user interface; MLflow itself is not needed here.

Examples
--------
>>> run_page("http://127.0.0.1:5000", "1", "abc")
'http://127.0.0.1:5000/#/experiments/1/runs/abc?workflowType=machine_learning'
"""

from __future__ import annotations

import json
from collections.abc import Sequence

__all__ = ["ROUNDS_VIEW", "cells_view", "experiment_page", "rounds_view", "run_page"]

ROUNDS_VIEW = "mlflow.sharedViewState.rounds"
"""Tag of an experiment: a view of its runs that a link can name, under MLflow's prefix."""

_VIEW_NAME = ROUNDS_VIEW.rpartition(".")[2]

# Otherwise MLflow 3 shows its pages for language models, without the model registry.
_WORKFLOW = "workflowType=machine_learning"

_METRICS = (
    *("accepted", "rejected", "missing", "drifted", "n_cohorts", "mean_loss"),
    *("f1/stationary", "f1/drifting"),
)


def rounds_view() -> str:
    """Return the value of `ROUNDS_VIEW`: rounds with their numbers, which MLflow else hides."""
    columns = ["attributes.`Created`", *(f"metrics.`{name}`" for name in _METRICS)]
    return json.dumps({"selectedColumns": columns})


def cells_view(figures: Sequence[str]) -> str:
    """Return the same for a comparison: its cells with what they are and came to."""
    cell = [f"params.`{name}`" for name in ("scenario", "method", "seed")]
    return json.dumps({"selectedColumns": [*cell, *(f"metrics.`{name}`" for name in figures)]})


def experiment_page(address: str, experiment_id: str, *, has_view: bool) -> str:
    """Return the page of an experiment's runs.

    Parameters
    ----------
    address : str
        Of the server, without a slash at the end.
    experiment_id : str
    has_view : bool
        The experiment has the tag `ROUNDS_VIEW`; MLflow refuses a link to a view that is not there.
    """
    view = f"&viewStateShareKey={_VIEW_NAME}" if has_view else ""
    return f"{address}/#/experiments/{experiment_id}/runs?{_WORKFLOW}{view}"


def run_page(address: str, experiment_id: str, run_id: str) -> str:
    """Return the page of a run."""
    return f"{address}/#/experiments/{experiment_id}/runs/{run_id}?{_WORKFLOW}"
