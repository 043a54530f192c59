"""Group as CLMA's Algorithm 3 says: split by the sign of KS, project, k-means.

After the public description of CLMA (doi 10.1145/3703323.3703341), Algorithm 3.

Notes
-----
The listing shows one eigenvalue decomposition before the split; here each side has its own, as the
public implementation does. With ``center = false`` the rows are the raw weights, as listed.
"""

from __future__ import annotations

import numpy as np

from clma.cohorting.clustering import Clustering, fixed_kmeans, silhouette_kmeans
from clma.cohorting.contract import CohortingUnit, Evidence
from clma.cohorting.projection import project
from clma.config import CohortingConfig
from clma.errors import InvalidConfigError

__all__ = ["group_by_signed_ks"]


def group_by_signed_ks(
    unit: CohortingUnit, evidence: Evidence, config: CohortingConfig
) -> Clustering:
    """Group the clients of either sign apart; T = 0 counts as negative.

    Raises
    ------
    InvalidConfigError
        If the raw inner products were not measured.
    """
    if evidence.raw_gram is None:
        raise InvalidConfigError("method 'signed_ks' needs the inner products of the raw weights")
    labels = np.zeros(len(unit.members), dtype=np.int64)
    silhouettes = []
    n_groups = 0
    for side in (evidence.ks_statistics > 0, evidence.ks_statistics <= 0):
        rows = np.flatnonzero(side)
        if rows.size == 0:
            continue
        points = project(
            evidence.raw_gram[np.ix_(rows, rows)],
            variance_kept=config.variance_kept,
            center=config.center,
        )
        clustering = (
            fixed_kmeans(points, seed=unit.seed, n_groups=config.fixed_k)
            if config.clusterer == "fixed_kmeans"
            else silhouette_kmeans(
                points,
                seed=unit.seed,
                max_groups=config.max_groups,
                silhouette_floor=config.silhouette_floor,
            )
        )
        labels[rows] = np.array(clustering.labels) + n_groups
        n_groups += max(clustering.labels) + 1
        silhouettes.append(clustering.silhouette)
    known = [s for s in silhouettes if s is not None]
    return Clustering(tuple(int(label) for label in labels), min(known) if known else None)
