"""One round as a pure step: (state, sealed updates, configuration) -> (state, decision).

The steps stand in the order of the night, each a function of its own, so that an orchestrator can
run them as separate tasks and get the bytes that `run_round` gets in one go:

1. `detect_drift` measures the updates (may run by shard of clients),
2. `quarantine_clients` takes the flagged ones out of their cohorts' means,
3. `cohorting_units`, `form_groups` (one call a unit) find who drifted alike,
4. `place_groups` names cohorts and lists the models to make,
5. `aggregate_cohort` (one call a cohort) makes them,
6. `decide` writes the decision and the next state.

After the public description of CLMA (doi 10.1145/3703323.3703341), Algorithm 1; departures are in
the notes of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from clma.aggregation.weighted_mean import average_models
from clma.cohorting.contract import OpenTensors
from clma.cohorting.form import EVIDENCE_DIGITS, form_groups
from clma.cohorting.placement import AggregationJob, place_groups
from clma.cohorting.units import cohorting_units
from clma.config import FederationConfig
from clma.decision import AggregatedModel, Measurement, decide
from clma.drift.quarantine import quarantine_clients
from clma.errors import RoundHeldError
from clma.parameters.moves import measure_movements
from clma.parameters.selectors import make_selector
from clma.records import ROOT_COHORT, FederationState, SealedUpdate, model_ref
from clma.rows import RoundDecision, SealedRound

__all__ = [
    "RoundOutcome",
    "aggregate_cohort",
    "average_everybody",
    "check_quorum",
    "measure_updates",
    "run_round",
]

SaveModel = Callable[[bytes], str]
"""Stores a model and returns its digest."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The next state and what led to it."""

    state: FederationState
    decision: RoundDecision


def check_quorum(sealed: SealedRound, config: FederationConfig) -> None:
    """Refuse a round that too few clients take part in.

    Raises
    ------
    RoundHeldError
        If fewer updates than ``round.quorum`` were accepted, or all have 0 examples together.
    """
    n_accepted = len(sealed.updates)
    if n_accepted < config.round.quorum:
        raise RoundHeldError(
            f"round {sealed.round_num}: {n_accepted} updates accepted, "
            f"round.quorum is {config.round.quorum}; the last good models keep serving"
        )
    weighed = config.aggregation.weight == "equal" or any(u.n_examples for u in sealed.updates)
    if not weighed:
        raise RoundHeldError(
            f"round {sealed.round_num}: NO_WEIGHT, {n_accepted} updates have 0 examples together; "
            "the last good models keep serving"
        )


def measure_updates(
    updates: Sequence[SealedUpdate], open_tensors: OpenTensors, config: FederationConfig
) -> tuple[Measurement, ...]:
    """Measure how far each client moved from the model it was sent.

    Parameters
    ----------
    updates : sequence of SealedUpdate
        A shard of the round; one file is open at a time.
    open_tensors : callable
    config : FederationConfig
        Its selector says which tensors count.

    Returns
    -------
    tuple of Measurement
        In the order of `updates`.
    """
    select = make_selector(config.cohorting)
    measured = []
    for update in updates:
        with (
            open_tensors(update.tensors) as file,
            open_tensors(model_ref(update.base_digest)) as base,
        ):
            norm = float(measure_movements([file], base, select(base.specs)).norms[0])
        measured.append(Measurement(update.client_id, round(norm, EVIDENCE_DIGITS)))
    return tuple(measured)


def aggregate_cohort(
    job: AggregationJob,
    open_tensors: OpenTensors,
    base_digest: str,
    config: FederationConfig,
    save_model: SaveModel,
) -> AggregatedModel:
    """Make and store one cohort's model.

    Parameters
    ----------
    job : AggregationJob
    open_tensors : callable
    base_digest : str
        Any model of the federation: its names, shapes and dtypes are those of all.
    config : FederationConfig
    save_model : callable
    """
    weights = [1.0 if config.aggregation.weight == "equal" else u.n_examples for u in job.voters]
    files = [partial(open_tensors, u.tensors) for u in job.voters]
    with open_tensors(model_ref(base_digest)) as base:
        digest = save_model(average_models(files, weights, base))
    return AggregatedModel(job.cohort_id, digest, len(job.voters), job.n_examples)


def average_everybody(
    sealed: SealedRound,
    open_tensors: OpenTensors,
    base_digest: str,
    config: FederationConfig,
    save_model: SaveModel,
) -> str | None:
    """Make the average over all accepted updates, where the configuration compares with it."""
    if config.cohorting.reference != "consensus":
        return None
    job = AggregationJob("consensus", sealed.updates)
    return aggregate_cohort(job, open_tensors, base_digest, config, save_model).model_digest


def run_round(
    state: FederationState,
    sealed: SealedRound,
    config: FederationConfig,
    *,
    open_tensors: OpenTensors,
    save_model: SaveModel,
) -> RoundOutcome:
    """Run a whole round in this process.

    Parameters
    ----------
    state : FederationState
        Before the round. Not modified.
    sealed : SealedRound
        Accepted updates; their order does not matter.
    config : FederationConfig
    open_tensors : callable
        Opens a stored tensor file.
    save_model : callable
        Stores the bytes of a model, returns its digest.

    Returns
    -------
    RoundOutcome
        Equal input gives equal output, and equal bytes of every model.

    Raises
    ------
    RoundHeldError
        If there are too few updates to publish anything.
    """
    check_quorum(sealed, config)
    root_digest = state.cohorts[ROOT_COHORT].model_digest
    measurements = measure_updates(sealed.updates, open_tensors, config)
    triage = quarantine_clients(state, sealed, config)
    groupings = tuple(
        form_groups(unit, open_tensors, config.cohorting)
        for unit in cohorting_units(state, sealed, triage, config)
    )
    placement = place_groups(state, sealed, triage, groupings, config)
    models: Mapping[str, AggregatedModel] = {
        job.cohort_id: aggregate_cohort(job, open_tensors, root_digest, config, save_model)
        for job in placement.jobs
    }
    consensus = average_everybody(sealed, open_tensors, root_digest, config, save_model)
    after, decision = decide(
        state, sealed, config, measurements, triage, placement, models, consensus
    )
    return RoundOutcome(after, decision)
