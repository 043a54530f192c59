"""Write down what a round decided: the rows of the tables and the next state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clma.cohorting.placement import Placement
from clma.config import FederationConfig
from clma.drift.quarantine import Triage
from clma.drift.unstable import is_resting, park, remember_move
from clma.records import (
    ChoiceMemory,
    ClientState,
    ClientStatus,
    Cohort,
    CohortStatus,
    FederationState,
    Phase,
)
from clma.rows import AssignmentRow, CohortRow, DriftRow, Gate, RoundDecision, SealedRound

__all__ = ["AggregatedModel", "Measurement", "decide"]

_AWAY = frozenset({ClientStatus.PAUSED, ClientStatus.FORGOTTEN})


@dataclass(frozen=True, slots=True)
class Measurement:
    """How far a client moved: Euclidean norm of its update, in units of the parameters."""

    client_id: str
    update_norm: float


@dataclass(frozen=True, slots=True)
class AggregatedModel:
    """A cohort's new model, what went into it, and what its server optimiser has to say.

    The last two fields are those of `Cohort`.
    """

    cohort_id: str
    model_digest: str
    n_updates: int
    n_examples: int
    optimizer_digest: str | None = None
    learning_rate_factor: float = 1.0


def decide(
    state: FederationState,
    sealed: SealedRound,
    config: FederationConfig,
    measurements: Sequence[Measurement],
    triage: Triage,
    placement: Placement,
    models: Mapping[str, AggregatedModel],
    consensus_digest: str | None = None,
) -> tuple[FederationState, RoundDecision]:
    """Put the parts of a round together.

    Parameters
    ----------
    state : FederationState
        Before the round. Not modified.
    sealed, config, measurements, triage, placement
        What the steps before returned.
    models : mapping of cohort id to AggregatedModel
        One for every job of `placement`.
    consensus_digest : str or None

    Returns
    -------
    FederationState, RoundDecision
        Every registered client is in exactly one cohort and is served a model that exists.
    """
    cohorts = _with_streaks(_cohorts_after(state, placement, models), triage)
    accepted = frozenset(update.client_id for update in sealed.updates)
    clients = {
        client_id: _client_after(
            client, state.round_num, client_id in accepted, triage, placement, cohorts, config
        )
        for client_id, client in sorted(state.clients.items())
    }
    after = dataclasses.replace(
        state,
        phase=Phase.COMMITTED,
        clients=clients,
        cohorts=cohorts,
        consensus_digest=consensus_digest,
        sealed=None,
    ).rested()
    decision = RoundDecision(
        round_num=state.round_num,
        updates=sealed.rows,
        drift=_drift_rows(state, sealed, config, measurements, triage, placement, clients),
        cohorting=placement.rows,
        assignments=tuple(_assignment_row(state.clients[i], c) for i, c in clients.items()),
        cohorts=tuple(
            _cohort_row(c, state, after, placement, models) for c in after.cohorts.values()
        ),
        consensus_digest=consensus_digest,
    )
    return after, decision


def _cohorts_after(
    state: FederationState, placement: Placement, models: Mapping[str, AggregatedModel]
) -> dict[str, Cohort]:
    cohorts = dict(state.cohorts)
    for job in placement.jobs:
        made = models[job.cohort_id]
        digest = made.model_digest
        cohort = cohorts.get(job.cohort_id)
        if cohort is None:
            cohort = Cohort(
                cohort_id=job.cohort_id,
                parent=job.parent,
                born_round=state.round_num,
                model_digest=digest,
                origin_digest=job.reference_digest,
                largest_mean_norm=_longest_of(job.parent, state),
                birth_digest=digest,
            )
        elif digest != cohort.model_digest:
            cohort = dataclasses.replace(
                cohort, model_digest=digest, previous_digest=cohort.model_digest
            )
        cohorts[job.cohort_id] = dataclasses.replace(
            cohort,
            optimizer_digest=made.optimizer_digest,
            learning_rate_factor=made.learning_rate_factor,
        )
    for cohort_id, target in placement.merged.items():
        cohorts[cohort_id] = dataclasses.replace(
            cohorts[cohort_id], status=CohortStatus.MERGED, merged_into=target
        )
    for cohort_id, norm in placement.mean_norms.items():
        longest = max(norm, cohorts[cohort_id].largest_mean_norm)
        cohorts[cohort_id] = dataclasses.replace(cohorts[cohort_id], largest_mean_norm=longest)
    return cohorts


def _with_streaks(cohorts: Mapping[str, Cohort], triage: Triage) -> dict[str, Cohort]:
    """Write down which of the cohorts that were compared are alike."""
    compared = {
        cohort_id: dataclasses.replace(cohorts[cohort_id], alike_to=to, alike_rounds=rounds)
        for cohort_id, (to, rounds) in triage.alike.items()
    }
    return {**cohorts, **compared}


def _longest_of(cohort_id: str | None, state: FederationState) -> float:
    return 0.0 if cohort_id is None else state.cohorts[cohort_id].largest_mean_norm


def _client_after(
    client: ClientState,
    round_num: int,
    accepted: bool,
    triage: Triage,
    placement: Placement,
    cohorts: Mapping[str, Cohort],
    config: FederationConfig,
) -> ClientState:
    client = dataclasses.replace(client, n_updates=client.n_updates + accepted)
    if client.status in _AWAY:
        return client
    if client.client_id in placement.held:
        return dataclasses.replace(client, status=ClientStatus.QUARANTINED)
    if client.status is ClientStatus.QUARANTINED and not accepted:
        return client
    target = placement.moves.get(client.client_id, client.cohort_id)
    digest = cohorts[target].model_digest
    moved = target != client.cohort_id
    went_home = client.client_id in triage.returning
    status = ClientStatus.ACTIVE if accepted else ClientStatus.MISSING
    if is_resting(client, round_num + 1):
        status = ClientStatus.UNSTABLE
    merged = client.cohort_id in placement.merged
    client = dataclasses.replace(
        client,
        cohort_id=target,
        status=status,
        serving_digest=digest,
        serving_since=round_num + 1 if digest != client.serving_digest else client.serving_since,
        # A client that went home has no move left to confirm.
        moved_round=None if went_home else round_num if moved else client.moved_round,
        origin_cohort=None if went_home else client.cohort_id if moved else client.origin_cohort,
        unconfirmed=not went_home
        and not merged
        and (
            moved
            or (client.unconfirmed and not (accepted and _asked_enough(client, round_num, config)))
        ),
        choices=ChoiceMemory() if moved else triage.choices.get(client.client_id, client.choices),
        moves=remember_move(client.moves, client.cohort_id, round_num, config)
        if moved and not merged
        else client.moves,
    )
    return park(client, round_num, cohorts, config)


def _asked_enough(client: ClientState, round_num: int, config: FederationConfig) -> bool:
    moved = client.moved_round
    return moved is None or round_num - moved >= config.drift.confirm_rounds


def _drift_rows(
    state: FederationState,
    sealed: SealedRound,
    config: FederationConfig,
    measurements: Sequence[Measurement],
    triage: Triage,
    placement: Placement,
    clients: Mapping[str, ClientState],
) -> tuple[DriftRow, ...]:
    voted_in = {voter.client_id: job.cohort_id for job in placement.jobs for voter in job.voters}
    norms = {m.client_id: m.update_norm for m in measurements}
    shares_loss = "loss" in config.privacy.share
    outliers = frozenset(triage.outliers)
    return tuple(
        DriftRow(
            client_id=update.client_id,
            cohort_before=state.clients[update.client_id].cohort_id,
            drift_flag=update.drift_flag,
            loss=update.loss if shares_loss else None,
            update_norm=norms.get(update.client_id),
            server_check="outlier" if update.client_id in outliers else "ok",
            detail=_detail(state, clients[update.client_id], triage, placement),
            voted_in=voted_in.get(update.client_id),
            scores=triage.scores.get(update.client_id, ()),
        )
        for update in sorted(sealed.updates, key=lambda u: u.client_id)
    )


def _detail(
    state: FederationState, after: ClientState, triage: Triage, placement: Placement
) -> str | None:
    """Return everything there is to say about a client, None if that is nothing."""
    client_id = after.client_id
    notes = [triage.notes.get(client_id), placement.notes.get(client_id)]
    if after.rests_until > state.clients[client_id].rests_until:
        notes.append(
            f"unstable: it moved too often, and is parked in {after.cohort_id} until round "
            f"{after.rests_until}"
        )
    return "; ".join(note for note in notes if note) or None


def _assignment_row(before: ClientState, after: ClientState) -> AssignmentRow:
    return AssignmentRow(
        client_id=after.client_id,
        cohort_before=before.cohort_id,
        cohort_after=after.cohort_id,
        status=after.status,
        serving_digest=after.serving_digest,
        serving_since=after.serving_since,
    )


def _cohort_row(
    cohort: Cohort,
    before: FederationState,
    after: FederationState,
    placement: Placement,
    models: Mapping[str, AggregatedModel],
) -> CohortRow:
    model = models.get(cohort.cohort_id)
    known = before.cohorts.get(cohort.cohort_id)
    unchanged = known is not None and known.model_digest == cohort.model_digest
    reason = placement.too_few.get(cohort.cohort_id)
    merged = placement.merged.get(cohort.cohort_id)
    return CohortRow(
        cohort_id=cohort.cohort_id,
        parent=cohort.parent,
        born_round=cohort.born_round,
        status=cohort.status,
        n_members=len(after.members(cohort.cohort_id)),
        n_updates=0 if model is None else model.n_updates,
        n_examples=0 if model is None else model.n_examples,
        model_digest=cohort.model_digest,
        previous_digest=cohort.previous_digest,
        gate=Gate.HELD if reason else Gate.UNCHANGED if unchanged else Gate.PROMOTED,
        gate_detail=f"became part of {merged}" if merged else reason,
    )
