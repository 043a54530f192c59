"""MLflow as a projection of the ledger: the only place in the project that talks to it.

`publish_cohort` and `publish_round` write a committed round, `rebuild` all of them; whatever is
there already is found and left. Set-up, once: `resolve_tracking` says where.
"""

from __future__ import annotations

import os
from pathlib import Path

# MLflow reads these when it is imported; a plant's network is not told about our nights.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
# Standard output belongs to the results of a flow.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
# A new database is announced in log lines that tell an operator nothing.
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
# matplotlib, which draws the figures, would keep its list of fonts in the user's home.
os.environ.setdefault("MPLCONFIGDIR", str(Path(__file__).parents[2] / ".cache" / "matplotlib"))

from mlflow.exceptions import MlflowException as TrackingError

from tasks.tracking.comparison import publish_cell, published_cells
from tasks.tracking.location import ROOT, Tracking, resolve_tracking, wanted_tracking
from tasks.tracking.names import CHAMPION, registered_model_name, split_model_name
from tasks.tracking.outage import TrackingAwayError, shorten_waits
from tasks.tracking.publish import (
    missed_rounds,
    publish_cohort,
    publish_round,
    publish_whole,
    published_rounds,
)
from tasks.tracking.publisher import one_publisher
from tasks.tracking.rebuilding import forget_published, rebuild
from tasks.tracking.reports import PrefectRun, PublishedCohort, PublishedRound, PublishReport

shorten_waits()

__all__ = [
    "CHAMPION",
    "ROOT",
    "PrefectRun",
    "PublishReport",
    "PublishedCohort",
    "PublishedRound",
    "Tracking",
    "TrackingAwayError",
    "TrackingError",
    "forget_published",
    "missed_rounds",
    "one_publisher",
    "publish_cell",
    "publish_cohort",
    "publish_round",
    "publish_whole",
    "published_cells",
    "published_rounds",
    "rebuild",
    "registered_model_name",
    "resolve_tracking",
    "split_model_name",
    "wanted_tracking",
]
