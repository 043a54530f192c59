"""The models that a client may train from: its own cohort's, or the best of several it tries.

Methods that know cohorts by their losses (IFCA, FedDrift) send a client more than one model. It
measures its loss on each of them on fresh data before it trains: the probe costs no round trip. So
does CLMA where ``cohorting.choice`` has clients compare models (`clma.cohorting.questions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from clma.cohorting.questions import compared_cohorts, question_for
from clma.config import FederationConfig
from clma.methods import METHODS
from clma.records import ClientState, ClientStatus, Cohort, CohortStatus, FederationState

__all__ = ["OfferedModel", "admissible_bases", "isolated", "offered_models"]


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """One model of a client's choice.

    Parameters
    ----------
    cohort_id : str
    digest : str
    trainable : bool
        False: its loss is asked for, but it is not to be trained.
    """

    cohort_id: str
    digest: str
    trainable: bool = True


def offered_models(
    state: FederationState,
    client: ClientState,
    config: FederationConfig,
    *,
    drifted: bool = False,
) -> tuple[OfferedModel, ...]:
    """Return the models of a client's choice, its own cohort's first; empty if it has none.

    Parameters
    ----------
    state : FederationState
        With the round open.
    client : ClientState
    config : FederationConfig
    drifted : bool
        It raised its flag and asks for what ``cohorting.choice`` gives it then.

    Notes
    -----
    Of more than ``cohorting.max_models`` cohorts the ones without members are left out first, the
    oldest of them before the newer ones.
    """
    if config.cohorting.choice != "none":
        return _offered_to_compare(state, client, config, drifted=drifted)
    if not METHODS[config.cohorting.method].offers_all:
        return ()
    if client.status is ClientStatus.QUARANTINED:
        return (OfferedModel(client.cohort_id, client.serving_digest),)
    own = state.cohorts[client.cohort_id]
    others = [
        cohort
        for cohort in _worth_sending(state, config.cohorting.max_models)
        if cohort.cohort_id != own.cohort_id
    ]
    return (
        OfferedModel(own.cohort_id, client.serving_digest),
        *(
            OfferedModel(c.cohort_id, c.model_digest, not isolated(c, state.round_num, config))
            for c in others
        ),
    )


def admissible_bases(
    state: FederationState, client: ClientState, config: FederationConfig
) -> tuple[str, ...]:
    """Return the models that a client may train beside the one it is served, without an order.

    Notes
    -----
    Where ``cohorting.choice`` is on, those of all cohorts: what a client is offered depends on its
    flag and on who else is a member where, and a model that is served to others is as good a base.
    """
    if config.cohorting.choice != "none":
        return tuple(
            c.model_digest for c in state.cohorts.values() if c.status is not CohortStatus.MERGED
        )
    offers = offered_models(state, client, config)[1:]
    return tuple(offer.digest for offer in offers if offer.trainable)


def _offered_to_compare(
    state: FederationState, client: ClientState, config: FederationConfig, *, drifted: bool
) -> tuple[OfferedModel, ...]:
    question = question_for(state, client, config)
    wanted = [] if question is None else [question.cohort_id]
    compared = compared_cohorts(state, client, config, drifted=drifted)
    if compared:
        worth = _worth_sending(state, config.cohorting.max_models)
        wanted += [c.cohort_id for c in compared if c in worth and c.cohort_id not in wanted]
    others = [
        OfferedModel(cohort_id, state.cohorts[cohort_id].model_digest)
        for cohort_id in wanted
        if state.cohorts[cohort_id].model_digest != client.serving_digest
    ]
    return (OfferedModel(client.cohort_id, client.serving_digest), *others) if others else ()


def isolated(cohort: Cohort, round_num: int, config: FederationConfig) -> bool:
    """Tell whether a cohort is too young for clients that did not found it (FedDrift)."""
    if config.cohorting.method != "feddrift" or cohort.parent is None:
        return False
    return round_num - cohort.born_round <= config.cohorting.isolation_rounds


def _worth_sending(state: FederationState, most: int) -> list[Cohort]:
    known = [c for c in state.cohorts.values() if c.status is not CohortStatus.MERGED]
    in_use = [c for c in known if c.status is CohortStatus.ACTIVE]
    resting = [c for c in known if c.status is not CohortStatus.ACTIVE]
    kept = {c.cohort_id for c in [*in_use, *reversed(resting)][:most]}
    return [c for c in known if c.cohort_id in kept]
