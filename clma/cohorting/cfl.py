"""CFL: split a cohort in two when its mean stands still while its members still move.

At a stationary point of the mean, clients of one distribution stand still as well; if some still
move far, they pull in different ways, and the directions of their updates say who with whom.

References
----------
.. [1] Sattler, Mueller and Samek (2021), "Clustered Federated Learning: Model-Agnostic Distributed
   Multitask Optimization under Privacy Constraints", IEEE TNNLS 32(8) (arXiv 1910.01991),
   algorithm 2 and equations 24 to 27.

Notes
-----
Departures: the thresholds are shares of the longest mean update that a cohort had so far, since
lengths have no scale of their own (epsilon 1 is ``mean_norm_share`` of it, epsilon 2
``member_norm_share``); a cohort of which a member did not answer is not split in that
round; the larger half keeps the cohort's name and both go on from the mean of their members.

Examples
--------
>>> updates = np.array([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [-0.9, -0.1]])
>>> bipartition(cosine_distances(updates @ updates.T))
(0, 0, 1, 1)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from clma.cohorting.clustering import Clustering
from clma.cohorting.contract import CohortingUnit, Evidence
from clma.config import CohortingConfig, FederationConfig
from clma.drift.quarantine import Triage, quarantine_clients
from clma.parameters.moves import mean_norm
from clma.records import FederationState
from clma.rows import SealedRound

__all__ = ["bipartition", "separation", "split_in_two", "triage_whole_cohorts"]

MIN_MEMBERS = 3
"""Of two members, one each is no cohort."""


def triage_whole_cohorts(
    state: FederationState, sealed: SealedRound, config: FederationConfig
) -> Triage:
    """Compare all members of every cohort that answered as a whole; in other cohorts all vote.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    config : FederationConfig
    """
    triage = quarantine_clients(state, sealed, config)
    compared = [
        cohort_id
        for cohort_id, voters in triage.voters.items()
        if len(voters) >= MIN_MEMBERS and set(voters) == set(state.members(cohort_id))
    ]
    return Triage(
        voters={c: voters for c, voters in triage.voters.items() if c not in compared},
        quarantined=tuple(sorted(v for c in compared for v in triage.voters[c])),
        returning={},
        notes=triage.notes,
    )


def split_in_two(unit: CohortingUnit, evidence: Evidence, config: CohortingConfig) -> Clustering:
    """Split a cohort's members, or leave them together."""
    n = len(unit.members)
    together = Clustering((0,) * n)
    gram = evidence.movements.gram[:n, :n]
    longest = unit.largest_mean_norm
    ripe = (
        unit.round_num > config.warm_up_rounds
        and n >= MIN_MEMBERS
        and mean_norm(gram, [m.n_examples for m in unit.members]) < config.mean_norm_share * longest
        and float(np.sqrt(np.diag(gram).max())) > config.member_norm_share * longest
    )
    if not ripe:
        return together
    labels = bipartition(evidence.distances)
    apart = separation(1 - evidence.distances, labels) > config.min_separation
    return Clustering(labels) if apart else together


def bipartition(distances: NDArray[np.float64]) -> tuple[int, ...]:
    """Cut in two so that the largest similarity across the cut is smallest: complete linkage.

    Parameters
    ----------
    distances : ndarray of shape (n, n), n >= 2
        One minus cosine.

    Returns
    -------
    tuple of int
        0 or 1; the first client has 0.
    """
    tree = linkage(squareform(distances, checks=False), method="complete")
    labels = fcluster(tree, 2, criterion="maxclust")
    return tuple(int(label != labels[0]) for label in labels)


def separation(similarities: NDArray[np.float64], labels: tuple[int, ...]) -> float:
    """Return the gap ``sqrt((1 - s) / 2)`` of a cut, s its largest similarity across; in [0, 1]."""
    side = np.asarray(labels, dtype=bool)
    if side.all() or not side.any():
        return 0.0
    across = float(similarities[np.ix_(side, ~side)].max())
    return float(np.sqrt(np.clip((1 - across) / 2, 0.0, 1.0)))
