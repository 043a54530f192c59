"""Make one cohort's model."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import get_run_logger, task

import clma.round as steps
from clma.cohorting.placement import AggregationJob
from clma.decision import AggregatedModel
from clma.ledger.federation import Federation
from clma.records import ROOT_COHORT
from clma.sweep.plan import CONSENSUS
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
from tasks.quarantine_clients import Quarantine
from tasks.sweep_updates import Swept, load_plan, load_votes

__all__ = ["aggregate_cohort", "average_everybody"]


@task(**CACHED, **IO_RETRIES, task_run_name="aggregate {job.cohort_id}")
def aggregate_cohort(job: JobRef, night: Night, swept: Sequence[Swept]) -> AggregatedModel:
    """Make a cohort's model of its voters' weights and store it under its digest."""
    federation = open_federation(night)
    model = _aggregate(federation, night, load_stage(federation, job.job, AggregationJob), swept)
    get_run_logger().info(
        "%s: %d updates, %d examples, model %.12s",
        model.cohort_id,
        model.n_updates,
        model.n_examples,
        model.model_digest,
    )
    return model


@task(**CACHED, **IO_RETRIES, task_run_name="average everybody")
def average_everybody(night: Night, quarantine: Quarantine, swept: Sequence[Swept]) -> str | None:
    """Average all accepted updates, where the configuration compares the next round with it."""
    federation = open_federation(night)
    for job in load_plan(federation, night, quarantine).jobs:
        if job.cohort_id == CONSENSUS:
            return _aggregate(federation, night, job, swept).model_digest
    return None


def _aggregate(
    federation: Federation, night: Night, job: AggregationJob, swept: Sequence[Swept]
) -> AggregatedModel:
    state, _ = sealed_inputs(federation, night)
    config = config_of_night(federation, night)
    return steps.aggregate_cohort(
        job,
        federation.open_tensors,
        state.cohorts[ROOT_COHORT].model_digest,
        config,
        federation.add_model,
        load_votes(federation, swept, job.cohort_id),
        steps.start_of(job, state, config),
    )
