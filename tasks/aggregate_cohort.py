"""Make one cohort's model."""

from __future__ import annotations

from prefect import get_run_logger, task

import clma.round as steps
from clma.cohorting.placement import AggregationJob
from clma.decision import AggregatedModel
from clma.records import ROOT_COHORT
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    load_stage,
    open_federation,
    sealed_inputs,
)
from tasks.place_groups import JobRef

__all__ = ["aggregate_cohort", "average_everybody"]


@task(**CACHED, **IO_RETRIES, task_run_name="aggregate {job.cohort_id}")
def aggregate_cohort(job: JobRef, night: Night) -> AggregatedModel:
    """Average the voters' weights and store the model under its digest."""
    federation = open_federation(night)
    state, _ = sealed_inputs(federation, night)
    model = steps.aggregate_cohort(
        load_stage(federation, job.job, AggregationJob),
        federation.open_tensors,
        state.cohorts[ROOT_COHORT].model_digest,
        config_of_night(federation, night),
        federation.add_model,
    )
    get_run_logger().info(
        "%s: %d updates, %d examples, model %.12s",
        model.cohort_id,
        model.n_updates,
        model.n_examples,
        model.model_digest,
    )
    return model


@task(**CACHED, **IO_RETRIES, task_run_name="average everybody")
def average_everybody(night: Night) -> str | None:
    """Average all accepted updates, where the configuration compares the next round with it."""
    federation = open_federation(night)
    state, sealed = sealed_inputs(federation, night)
    return steps.average_everybody(
        sealed,
        federation.open_tensors,
        state.cohorts[ROOT_COHORT].model_digest,
        config_of_night(federation, night),
        federation.add_model,
    )
