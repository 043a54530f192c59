"""FedDrift and FedDrift-Eager: know cohorts by the losses of their models.

Every client measures the loss of every cohort's model on its new data and trains the best one. If
even that one is worse than its best loss of the round before by more than delta, the client has
drifted: with FedDrift it founds a cohort of its own, and cohorts whose models do about as well on
each other's data become one later; with FedDrift-Eager all that drift in one round found one cohort
together.

References
----------
.. [1] Jothimurugesan, Hsieh, Wang, Joshi and Gibbons (2023), "Federated Learning under Distributed
   Concept Drift", AISTATS (arXiv 2206.00799), algorithms 1 (Eager) and 2.

Notes
-----
Departures: drift and distance are measured by the loss, as in the paper's text, not by accuracy;
one round is one time step; a new cohort starts from its founder's training on the best model that
it was sent, not from random weights; the loss of a cohort's model on a cohort's data is measured on
all of this round's data, not on a sample of batches; models without clients are kept.

Examples
--------
>>> losses = np.array([[0.2, 0.9, 0.3], [1.0, 0.3, 0.8], [0.25, 0.7, 0.2]])
>>> merge_clusters(cluster_distances(losses), merge_distance=0.5)
(0, 1, 0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from clma.cohorting.choice import chosen_cohort, cohorts_by_model, scores_of, voters_of
from clma.cohorting.clustering import TIE, Clustering, in_order
from clma.cohorting.contract import CohortingUnit, Evidence
from clma.config import CohortingConfig, FederationConfig
from clma.drift.quarantine import Triage, quarantine_clients
from clma.records import FederationState, SealedUpdate, cohort_number
from clma.rows import SealedRound

__all__ = [
    "cluster_distances",
    "group_together",
    "merge_clusters",
    "triage_by_loss",
    "triage_by_loss_eagerly",
]


def triage_by_loss_eagerly(
    state: FederationState, sealed: SealedRound, config: FederationConfig
) -> Triage:
    """Quarantine the drifted, let the others vote in the cohort whose model they chose.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    config : FederationConfig
    """
    by_flag = quarantine_clients(state, sealed, config)
    by_model = cohorts_by_model(state)
    drifted = set(by_flag.quarantined)
    settled = [u for u in sealed.updates if u.client_id not in drifted]
    chosen = {u.client_id: chosen_cohort(state.clients[u.client_id], u, by_model) for u in settled}
    return Triage(
        voters=voters_of(chosen),
        quarantined=by_flag.quarantined,
        returning={},
        notes=by_flag.notes,
        moving={
            client_id: cohort_id
            for client_id, cohort_id in sorted(chosen.items())
            if cohort_id != state.clients[client_id].cohort_id
        },
        scores=scores_of(sealed.updates, by_model),
    )


def triage_by_loss(state: FederationState, sealed: SealedRound, config: FederationConfig) -> Triage:
    """Do as FedDrift-Eager, and merge cohorts whose models do as well on each other's data.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    config : FederationConfig

    Notes
    -----
    Only cohorts that somebody trained in this round are compared. The merged cohort keeps the
    lowest number; its model is the weighted mean over the voters of all its parts.
    """
    triage = triage_by_loss_eagerly(state, sealed, config)
    updates = {u.client_id: u for u in sealed.updates}
    ripe = [
        cohort_id
        for cohort_id in sorted(triage.voters, key=cohort_number)
        if state.cohorts[cohort_id].parent is None
        or state.round_num - state.cohorts[cohort_id].born_round
        >= config.cohorting.isolation_rounds
    ]
    losses = _mean_losses(state, ripe, triage, updates)
    labels = merge_clusters(
        cluster_distances(losses), merge_distance=config.cohorting.merge_distance
    )
    # Sorted by number and labelled by first member: the first of a label is the one that stays.
    merged = {
        cohort_id: ripe[labels.index(label)]
        for cohort_id, label in zip(ripe, labels, strict=True)
        if ripe[labels.index(label)] != cohort_id
    }
    return _with_merged(triage, merged, state)


def cluster_distances(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much worse a model does on the other cluster's data than on its own, at worst.

    Parameters
    ----------
    losses : ndarray of shape (n_clusters, n_clusters)
        Mean loss of model i (row) on the data of cluster j (column); NaN where it was not measured.

    Returns
    -------
    ndarray of shape (n_clusters, n_clusters)
        ``max(L_ij - L_ii, L_ji - L_jj, 0)``, in units of the loss; symmetric, infinite where a loss
        is missing.
    """
    own = np.diag(losses)
    rise = losses - own[:, None]
    distances = np.maximum(np.maximum(rise, rise.T), 0.0)
    distances = np.where(np.isnan(rise) | np.isnan(rise.T), np.inf, distances)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)


def merge_clusters(distances: NDArray[np.float64], *, merge_distance: float) -> tuple[int, ...]:
    """Merge by complete linkage: no two clusters farther apart than `merge_distance` become one.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        As `cluster_distances` returns them.
    merge_distance : float, >= 0

    Returns
    -------
    tuple of int
        Label of every cluster; labels are numbered by their first cluster.
    """
    if len(distances) < 2:
        return (0,) * len(distances)
    # The tree wants finite numbers; what was not measured is farther than anything that was.
    finite = distances[np.isfinite(distances)]
    far = 2 * max(float(finite.max()), merge_distance, 1.0)
    tree = linkage(squareform(np.where(np.isfinite(distances), distances, far)), "complete")
    found = fcluster(tree, merge_distance + TIE, criterion="distance")
    return in_order(np.asarray(found))


def group_together(
    unit: CohortingUnit,
    evidence: Evidence,  # noqa: ARG001
    config: CohortingConfig,  # noqa: ARG001
) -> Clustering:
    """Put all that drifted in this round into one group (FedDrift-Eager)."""
    return Clustering((0,) * len(unit.members))


def _mean_losses(
    state: FederationState,
    cohort_ids: Sequence[str],
    triage: Triage,
    updates: Mapping[str, SealedUpdate],
) -> NDArray[np.float64]:
    losses = np.full((len(cohort_ids), len(cohort_ids)), np.nan)
    for row, model_of in enumerate(cohort_ids):
        digest = state.cohorts[model_of].model_digest
        for column, data_of in enumerate(cohort_ids):
            seen = [
                (update.losses[digest], update.n_examples)
                for update in (updates[v] for v in triage.voters[data_of])
                if digest in update.losses and update.n_examples > 0
            ]
            if seen:
                values, weights = zip(*seen, strict=True)
                losses[row, column] = np.average(values, weights=weights)
    return losses


def _with_merged(triage: Triage, merged: Mapping[str, str], state: FederationState) -> Triage:
    if not merged:
        return triage
    chosen = {
        client_id: merged.get(cohort_id, cohort_id)
        for cohort_id, voters in triage.voters.items()
        for client_id in voters
    }
    notes = {
        client_id: f"cohort {cohort_id} became part of {merged[cohort_id]}"
        for cohort_id, voters in triage.voters.items()
        for client_id in voters
        if cohort_id in merged
    }
    return replace(
        triage,
        voters=voters_of(chosen),
        moving={c: to for c, to in sorted(chosen.items()) if to != state.clients[c].cohort_id},
        merged=dict(merged),
        notes={**triage.notes, **notes},
    )
