"""One round as a pure step: (state, sealed updates, configuration) -> (state, decision).

The steps stand in the order of the night, each a function of its own, so that an orchestrator can
run them as separate tasks and get the bytes that `run_round` gets in one go:

1. `triage_clients` says who votes where and who is set apart, the flagged ones as a rule;
   `hold_out_outliers` sets apart who should have flagged; `cohorting_units` says who is compared
   with whom,
2. `sweep_shard` (one call a shard) reads every update: cohorts' votes, norms, inner products,
3. `form_groups` (one call a unit) finds who drifted alike,
4. `place_groups` names cohorts and lists the models to make,
5. `aggregate_cohort` (one call a cohort) makes them,
6. `decide` writes the decision and the next state.

After the public description of CLMA (doi 10.1145/3703323.3703341), Algorithm 1; departures are in
the notes of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clma.aggregation.server_step import Start, take_step
from clma.cohorting.contract import OpenTensors
from clma.cohorting.form import form_groups
from clma.cohorting.methods import triage_clients
from clma.cohorting.placement import AggregationJob, place_groups
from clma.cohorting.units import cohorting_units
from clma.config import FederationConfig
from clma.decision import AggregatedModel, decide
from clma.errors import RoundHeldError
from clma.parameters.output_layer import output_tensors
from clma.parameters.selectors import make_selector
from clma.records import ROOT_COHORT, ArtifactRef, FederationState, model_ref
from clma.rows import RoundDecision, SealedRound
from clma.sweep.columns import Columns, plan_columns
from clma.sweep.means import Sweep
from clma.sweep.merging import merge_cohorts
from clma.sweep.outliers import hold_out_outliers
from clma.sweep.plan import CONSENSUS, Shard, plan_sweep, rule_of
from clma.sweep.shard import measurements, sweep_shard, unit_evidence
from clma.sweep.votes import Votes, make_model, take_votes

__all__ = [
    "RoundOutcome",
    "aggregate_cohort",
    "check_quorum",
    "columns_of",
    "run_round",
    "start_of",
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


def columns_of(base: ArtifactRef, open_tensors: OpenTensors, config: FederationConfig) -> Columns:
    """Number the columns of the federation's model; its selector says which tensors count.

    Raises
    ------
    InvalidConfigError
        If the configuration selects no tensor, or names an output layer that the model lacks.
    """
    with open_tensors(base) as file:
        specs = file.specs
    cohorting = config.cohorting
    output = output_tensors(specs, cohorting) if cohorting.output_weight else ()
    return plan_columns(specs, make_selector(cohorting)(specs), output)


def aggregate_cohort(
    job: AggregationJob,
    open_tensors: OpenTensors,
    base_digest: str,
    config: FederationConfig,
    save_model: SaveModel,
    votes: Sequence[Votes] = (),
    start: Start | None = None,
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
    votes : sequence of Votes
        Of all shards, where the pass over the round's files took them; else the voters' files are
        read.
    start : Start, optional
        Where the server has an optimiser, as `start_of` returns it; without it the model is what
        the rule comes to.

    Raises
    ------
    NotEnoughClientsError
        If the configured rule needs more voters.
    """
    base, rule = model_ref(base_digest), rule_of(job, config)
    columns = columns_of(base, open_tensors, config)
    if not votes:
        sweep = Sweep(columns, columns.stripes(), open_tensors)
        votes = [take_votes(sweep, job.voters, rule, measured=False)]
    data = make_model(job.voters, votes, rule, columns, base, open_tensors)
    behind = len(job.voters), job.n_examples
    if start is None:
        return AggregatedModel(job.cohort_id, save_model(data), *behind)
    stepped = take_step(data, start, rule, open_tensors)
    return AggregatedModel(
        job.cohort_id,
        save_model(stepped.model),
        *behind,
        optimizer_digest=save_model(stepped.memory),
        learning_rate_factor=stepped.learning_rate_factor,
    )


def start_of(job: AggregationJob, state: FederationState, config: FederationConfig) -> Start | None:
    """Say from where the server's optimiser steps; None where there is none.

    A newborn cohort starts from the model that its members were sent, and remembers nothing.

    Parameters
    ----------
    job : AggregationJob
    state : FederationState
        Before the round.
    config : FederationConfig
    """
    if rule_of(job, config).server_optimizer == "none":
        return None
    known = state.cohorts.get(job.cohort_id)
    if known is None:
        return Start(model_ref(job.reference_digest or job.voters[0].base_digest))
    memory = known.optimizer_digest
    return Start(model_ref(known.model_digest), model_ref(memory) if memory else None)


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
    columns = columns_of(model_ref(root_digest), open_tensors, config)
    triage = triage_clients(state, sealed, config)
    triage = hold_out_outliers(sealed, triage, columns, open_tensors, config)
    triage = merge_cohorts(state, sealed, triage, columns, open_tensors, config)
    units = cohorting_units(state, sealed, triage, config)
    plan = plan_sweep(sealed, triage, units, config)
    models: dict[str, AggregatedModel] = {}

    def made(job: AggregationJob, votes: Sequence[Votes] = ()) -> AggregatedModel:
        start = start_of(job, state, config)
        return aggregate_cohort(job, open_tensors, root_digest, config, save_model, votes, start)

    def save_votes(job: AggregationJob, votes: Votes) -> None:
        models[job.cohort_id] = made(job, [votes])

    sums = sweep_shard(plan, Shard(0, 1), columns, open_tensors, config, save_votes)
    groupings = [
        form_groups(unit, unit_evidence(unit, [found], columns, config.cohorting), config.cohorting)
        for unit, found in zip(units, sums.units, strict=True)
    ]
    placement = place_groups(state, sealed, triage, groupings, config)
    models |= {job.cohort_id: made(job) for job in placement.jobs if job.cohort_id not in models}
    everybody = models.pop(CONSENSUS, None)
    consensus = everybody.model_digest if everybody else None
    after, decision = decide(
        state, sealed, config, measurements(plan, [sums]), triage, placement, models, consensus
    )
    return RoundOutcome(after, decision)
