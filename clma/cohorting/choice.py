"""Sort clients by the model they chose: who trained a cohort's model votes in that cohort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clma.config import FederationConfig
from clma.drift.quarantine import Triage
from clma.parameters.moves import EVIDENCE_DIGITS
from clma.records import ClientState, CohortStatus, FederationState, SealedUpdate
from clma.rows import SealedRound

__all__ = ["chosen_cohort", "cohorts_by_model", "scores_of", "triage_by_choice", "voters_of"]


def triage_by_choice(
    state: FederationState,
    sealed: SealedRound,
    config: FederationConfig,  # noqa: ARG001
) -> Triage:
    """Let every client vote in the cohort whose model it trained; flags decide nothing.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    config : FederationConfig
    """
    by_model = cohorts_by_model(state)
    updates = sorted(sealed.updates, key=lambda u: u.client_id)
    chosen = {u.client_id: chosen_cohort(state.clients[u.client_id], u, by_model) for u in updates}
    return Triage(
        voters=voters_of(chosen),
        quarantined=(),
        returning={},
        notes={
            u.client_id: "flag not followed: the client chose its model by its loss"
            for u in updates
            if u.drift_flag
        },
        moving={c: to for c, to in chosen.items() if to != state.clients[c].cohort_id},
        scores=scores_of(updates, by_model),
    )


def cohorts_by_model(state: FederationState) -> Mapping[str, str]:
    """Return the cohort of every model that can be chosen; of equal models the oldest cohort."""
    known: dict[str, str] = {}
    for cohort in state.cohorts.values():
        if cohort.status is not CohortStatus.MERGED:
            known.setdefault(cohort.model_digest, cohort.cohort_id)
    return known


def chosen_cohort(client: ClientState, update: SealedUpdate, by_model: Mapping[str, str]) -> str:
    """Return the cohort whose model a client trained; its own where that has the same model."""
    if update.base_digest == client.serving_digest:
        return client.cohort_id
    return by_model[update.base_digest]


def voters_of(chosen: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the sorted voters of each cohort, cohorts by name."""
    voters: dict[str, list[str]] = {}
    for client_id, cohort_id in sorted(chosen.items()):
        voters.setdefault(cohort_id, []).append(client_id)
    return {cohort_id: tuple(ids) for cohort_id, ids in sorted(voters.items())}


def scores_of(
    updates: Iterable[SealedUpdate], by_model: Mapping[str, str]
) -> dict[str, tuple[tuple[str, float], ...]]:
    """Return the loss of every cohort's model on each client's data, for those who measured it."""
    return {
        update.client_id: tuple(
            (cohort_id, round(update.losses[digest], EVIDENCE_DIGITS))
            for digest, cohort_id in by_model.items()
            if digest in update.losses
        )
        for update in updates
        if update.losses
    }
