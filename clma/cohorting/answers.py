"""Follow what clients answer that compared other cohorts' models with their own.

The flag says that a client's own model became bad, the choice where a better one is. A client that
trained another cohort's model votes and stays there, whatever it flagged; the others are sorted by
their flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clma.cohorting.choice import chosen_cohort, cohorts_by_model, scores_of, voters_of
from clma.cohorting.questions import Question, is_larger, question_for
from clma.config import FederationConfig
from clma.drift.quarantine import Triage, ended_cohorts, quarantine_clients
from clma.records import ChoiceMemory, ClientState, FederationState, SealedUpdate
from clma.rows import SealedRound

__all__ = ["triage_by_flag_and_choice"]


def triage_by_flag_and_choice(
    state: FederationState, sealed: SealedRound, config: FederationConfig
) -> Triage:
    """Let clients vote in the cohort whose model they trained, and sort the others by their flags.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    config : FederationConfig

    Returns
    -------
    Triage
        Equal for any order of the sealed updates. By the flags alone where ``cohorting.choice`` is
        ``none``.
    """
    if config.cohorting.choice == "none":
        return quarantine_clients(state, sealed, config)
    by_model = cohorts_by_model(state)
    updates = sorted(sealed.updates, key=lambda u: u.client_id)
    chosen = {
        u.client_id: to
        for u in updates
        if (to := _elsewhere(state.clients[u.client_id], u, by_model)) is not None
    }
    rest = tuple(u for u in updates if u.client_id not in chosen)
    asked = {u.client_id: question_for(state, state.clients[u.client_id], config) for u in rest}
    about_home = tuple(
        u if _is_home(asked[u.client_id], state.clients[u.client_id]) else replace(u, confirm=None)
        for u in rest
    )
    by_flag = quarantine_clients(state, replace(sealed, updates=about_home), config)
    home = {c: to for c, to in chosen.items() if state.clients[c].way_home() == to}
    voters = dict(chosen) | {v: to for to, ids in by_flag.voters.items() for v in ids}
    memories = {
        u.client_id: _remembered(state, state.clients[u.client_id], u, asked[u.client_id])
        for u in rest
    }
    return replace(
        by_flag,
        voters=voters_of(voters),
        returning={**by_flag.returning, **home},
        moving={c: to for c, to in chosen.items() if c not in home},
        merged=ended_cohorts(
            state, {**by_flag.returning, **home}, voters.values(), by_flag.quarantined
        ),
        notes={
            **{
                u.client_id: note
                for u in rest
                if (note := _note(state.clients[u.client_id], u, asked[u.client_id])) is not None
            },
            **by_flag.notes,
            **{c: _reason(state.clients[c], to) for c, to in chosen.items()},
        },
        scores=scores_of(updates, by_model),
        choices=memories,
    )


def _elsewhere(
    client: ClientState, update: SealedUpdate, by_model: Mapping[str, str]
) -> str | None:
    """Return the cohort whose model a client trained instead of the one it is served."""
    if update.base_digest == client.serving_digest:
        return None
    return chosen_cohort(client, update, by_model)


def _remembered(
    state: FederationState, client: ClientState, update: SealedUpdate, question: Question | None
) -> ChoiceMemory:
    if question is None or update.confirm is None:
        return client.choices
    asked = question.cohort_id
    if not update.confirm and is_larger(state, asked, client):
        return replace(client.choices, leaning=asked)
    if asked == client.way_home():
        return replace(client.choices, leaning=None)
    refused = {**dict(client.choices.refused), asked: state.round_num}
    return ChoiceMemory(refused=tuple(sorted(refused.items())))


def _is_home(question: Question | None, client: ClientState) -> bool:
    return question is not None and question.cohort_id == client.way_home()


def _note(client: ClientState, update: SealedUpdate, question: Question | None) -> str | None:
    if question is None or update.confirm is None:
        return None
    known = "bad" if update.confirm else "not bad"
    return f"kept {client.cohort_id}: the model of {question.cohort_id} is {known} there"


def _reason(client: ClientState, to: str) -> str:
    if client.way_home() == to:
        return f"went home to {to}: its model is not bad there any more"
    if client.choices.leaning == to:
        return f"chose {to}, not {client.cohort_id}: not bad twice in a row, and larger"
    return f"chose {to}, not {client.cohort_id}: clearly better"
