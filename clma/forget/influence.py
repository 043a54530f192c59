"""Which models a client's updates went into, and the same models without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from clma.aggregation import too_few_voters
from clma.cohorting.placement import AggregationJob
from clma.ledger.erasure import NewModel
from clma.ledger.federation import Federation
from clma.ledger.tables import read_rows
from clma.records import ROOT_COHORT, SealedUpdate
from clma.round import aggregate_cohort
from clma.rows import CohortRow, DriftRow

__all__ = ["InfluencedModel", "influenced_models", "models_without"]


@dataclass(frozen=True, slots=True)
class InfluencedModel:
    """A model that a client's update went into.

    Parameters
    ----------
    round_num : int
    cohort_id : str
    model_digest : str
    share : float in [0, 1]
        Weight of the client in the average; with another aggregation rule, what it would be there.
    new_digest : str or None
        The model made again without it; None if it stays.
    """

    round_num: int
    cohort_id: str
    model_digest: str
    share: float
    new_digest: str | None = None


def influenced_models(federation: Federation, client_id: str) -> Iterator[InfluencedModel]:
    """Yield the models that a client's updates were averaged into, in the order of the rounds."""
    for round_num in federation.committed_rounds():
        drift: Sequence[DriftRow] = read_rows(federation.store, round_num, "drift")
        for row in drift:
            if row.client_id == client_id and row.voted_in is not None:
                voters = _voters(federation, round_num, row.voted_in)
                total = sum(weight for _, weight in voters) or 1.0
                share = sum(w for u, w in voters if u.client_id == client_id) / total
                cohort = _cohort_row(federation, round_num, row.voted_in)
                yield InfluencedModel(round_num, row.voted_in, cohort.model_digest, share)


def models_without(
    federation: Federation,
    client_id: str,
    influenced: Sequence[InfluencedModel],
    save_model: Callable[[bytes], str],
) -> dict[str, NewModel]:
    """Make models again without a client.

    Parameters
    ----------
    federation : Federation
    client_id : str
    influenced : sequence of InfluencedModel
        In the order of the rounds.
    save_model : callable
        Stores a model, or only says what its digest is.

    Returns
    -------
    dict of digest to NewModel
        Old model to the one that takes its place, where they differ. Where nobody else voted, or
        too few for the aggregation rule, that is the model that the cohort had before, or was born
        from.
    """
    models: dict[str, NewModel] = {}
    for model in influenced:
        voters = [
            u
            for u, weight in _voters(federation, model.round_num, model.cohort_id)
            if weight and u.client_id != client_id
        ]
        rule = federation.config_at_seal(model.round_num).aggregation
        if voters and too_few_voters(len(voters), rule) is None:
            job = AggregationJob(model.cohort_id, tuple(voters))
            new = _average(federation, model.round_num, job, save_model)
        else:
            before = _model_before(federation, model)
            new = models.get(before) or NewModel(before, 0, 0)
        if new.digest != model.model_digest:
            models[model.model_digest] = new
    return models | _consensus_without(federation, client_id, save_model)


def _consensus_without(
    federation: Federation, client_id: str, save_model: Callable[[bytes], str]
) -> dict[str, NewModel]:
    """Make the averages over everybody again, where the configuration keeps them."""
    models: dict[str, NewModel] = {}
    for round_num in federation.committed_rounds():
        old = federation.state_at_commit(round_num).consensus_digest
        updates = federation.sealed_round(round_num).updates
        others = tuple(u for u in updates if u.client_id != client_id)
        if old is not None and others and len(others) < len(updates):
            job = AggregationJob("consensus", others)
            models[old] = _average(federation, round_num, job, save_model)
    return models


def _average(
    federation: Federation,
    round_num: int,
    job: AggregationJob,
    save_model: Callable[[bytes], str],
) -> NewModel:
    made = aggregate_cohort(
        job,
        federation.open_tensors,
        federation.state().cohorts[ROOT_COHORT].model_digest,
        federation.config_at_seal(round_num),
        save_model,
    )
    return NewModel(made.model_digest, made.n_updates, made.n_examples)


def _model_before(federation: Federation, model: InfluencedModel) -> str:
    row = _cohort_row(federation, model.round_num, model.cohort_id)
    state = federation.state()
    born_from = state.cohorts[model.cohort_id].origin_digest
    return row.previous_digest or born_from or state.cohorts[ROOT_COHORT].model_digest


def _cohort_row(federation: Federation, round_num: int, cohort_id: str) -> CohortRow:
    rows: Sequence[CohortRow] = read_rows(federation.store, round_num, "cohorts")
    return next(row for row in rows if row.cohort_id == cohort_id)


def _voters(
    federation: Federation, round_num: int, cohort_id: str
) -> list[tuple[SealedUpdate, float]]:
    equal = federation.config_at_seal(round_num).aggregation.weight == "equal"
    drift: Sequence[DriftRow] = read_rows(federation.store, round_num, "drift")
    voted = {row.client_id for row in drift if row.voted_in == cohort_id}
    updates = federation.sealed_round(round_num).updates
    return [(u, 1.0 if equal else float(u.n_examples)) for u in updates if u.client_id in voted]
