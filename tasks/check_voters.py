"""Hold voters out of the night's models who should have flagged a drift."""

from __future__ import annotations

import dataclasses
from functools import partial

from prefect import get_run_logger, task

from clma.drift.quarantine import Triage
from clma.sweep.merging import merge_cohorts
from clma.sweep.outliers import hold_out_outliers
from tasks.brief_log import log_lines
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    load_stage,
    open_federation,
    save_stage,
    sealed_inputs,
)
from tasks.quarantine_clients import Quarantine
from tasks.sweep_updates import load_columns

__all__ = ["check_voters"]


@task(**CACHED, **IO_RETRIES, task_run_name="check voters")
def check_voters(night: Night, quarantine: Quarantine) -> Quarantine:
    """Compare where the voters of a cohort point; return the quarantine without the outliers."""
    federation = open_federation(night)
    state, sealed = sealed_inputs(federation, night)
    triage = load_stage(federation, quarantine.triage, Triage)
    # Shares of which none is its own: the sweep reads all of these files and checks every one.
    unchecked = partial(federation.open_tensors_of_share, index=1, count=1)
    columns, config = load_columns(federation, night), config_of_night(federation, night)
    checked = hold_out_outliers(sealed, triage, columns, unchecked, config)
    checked = merge_cohorts(state, sealed, checked, columns, federation.open_tensors, config)
    if checked == triage:
        return quarantine
    lines = (f"{client}: {checked.notes[client]}" for client in checked.outliers)
    log_lines(get_run_logger().warning, lines, "drift")
    merges = (f"cohort {part} became part of {whole}" for part, whole in checked.merged.items())
    log_lines(get_run_logger().info, merges, "cohorting")
    return dataclasses.replace(quarantine, triage=save_stage(federation, night, "checked", checked))
