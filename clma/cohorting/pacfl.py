"""PACFL: clients whose data span nearby spaces belong together, once and for all.

Before its first round every client sends a few directions of its data. Who is near to whom is
clustered, and each cluster then averages for itself. Drift is no part of it: a client stays where
its first data put it.

References
----------
.. [1] Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah and Lin (2023), "Efficient Distribution
   Similarity Identification in Clustered Federated Learning via Principal Angles Between Client
   Data Subspaces", AAAI (arXiv 2209.10526), algorithm 1.

Notes
-----
Departures: the linkage is UPGMA (in the reference code a merged cluster's distance is the plain
mean of its two parts' distances); the number of clusters comes from silhouettes unless
``max_angle_deg`` (beta) is set, since beta depends on the data: 4.9 degrees is the reference's
value for CIFAR-10 with two labels a client, and for its shortcut; a newcomer goes to the cluster
with the smallest mean proximity, instead of a clustering of the extended matrix that might found
another one. The angles are described in `clma.signatures.pacfl`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.cohorting.signature_groups import (
    found_cohorts,
    group_alike,
    newcomers,
    placed_rounds,
    settle,
)
from clma.config import FederationConfig
from clma.records import FederationState
from clma.signatures.pacfl import KIND, Proximity, orthonormal_basis, proximity
from clma.signatures.signature import Signature, SignatureSource, arrays_of

__all__ = ["place_by_angles", "proximities"]


def place_by_angles(
    state: FederationState,
    config: FederationConfig,
    round_num: int,
    signature_of: SignatureSource,
) -> FederationState:
    """Return the state with every newcomer in a cohort; nobody else moves.

    Parameters
    ----------
    state : FederationState
        Not modified.
    config : FederationConfig
    round_num : int >= 1
        The round about to open.
    signature_of : callable

    Raises
    ------
    InvalidUpdateError, ShapeMismatchError
        If signatures do not compare; names the client.
    """
    new = newcomers(state, round_num)
    if not new:
        return state
    known = placed_rounds(state)
    rounds = {**known, **dict.fromkeys(new, round_num)}
    distances = proximities(
        {client_id: signature_of(client_id, r) for client_id, r in rounds.items()},
        config.cohorting.proximity,
        n_angles=config.cohorting.n_directions,
    )
    if not known:
        labels = group_alike(distances, config.cohorting, largest=config.cohorting.max_angle_deg)
        return settle(state, found_cohorts(state, new, labels), round_num)
    cohorts = [state.clients[client_id].cohort_id for client_id in known]
    to_known = distances[len(known) :, : len(known)]
    targets = {c: _nearest(row, cohorts) for c, row in zip(new, to_known, strict=True)}
    return settle(state, targets, round_num)


def proximities(
    signatures: Mapping[str, Signature], mode: Proximity = "sum", *, n_angles: int = 3
) -> NDArray[np.float64]:
    """Return how far every two clients are apart.

    Parameters
    ----------
    signatures : mapping of client id to Signature
    mode : {"sum", "smallest", "reference"}
    n_angles : int >= 1
        Terms of ``sum``.

    Returns
    -------
    ndarray of shape (n, n)
        Degrees, symmetric, zero diagonal; in the order of the mapping.
    """
    directions = arrays_of(signatures.items(), KIND, "directions")
    distances = np.zeros((len(directions), len(directions)))
    with one_blas_thread():
        spaces = directions if mode == "reference" else [orthonormal_basis(d) for d in directions]
        for row, space in enumerate(spaces):
            for column in range(row):
                distances[row, column] = proximity(space, spaces[column], mode, n_angles=n_angles)
    return distances + distances.T


def _nearest(distances: NDArray[np.float64], cohorts: list[str]) -> str:
    """Return the cohort of the smallest mean distance; of equals the one first met."""
    means = {
        cohort: float(np.mean([d for d, c in zip(distances, cohorts, strict=True) if c == cohort]))
        for cohort in dict.fromkeys(cohorts)
    }
    return min(means, key=lambda cohort: means[cohort])
