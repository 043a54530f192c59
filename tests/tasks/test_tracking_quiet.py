from __future__ import annotations

import os

import tasks.tracking  # noqa: F401


def test_mlflow_sends_nothing_home_and_prints_nothing_to_stdout() -> None:
    names = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT")

    # Who set it first decides how it is spelled.
    assert {os.environ.get(name) for name in names} <= {"true", "1"}
