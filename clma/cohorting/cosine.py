"""Group by the direction of updates: average linkage on cosine distances.

Our default. The cosine metric with average linkage is the one of one-shot clustered federated
learning (PACFL, FECFL); here it is applied to updates, within one origin cohort.
"""

from __future__ import annotations

from clma.cohorting.clustering import Clustering, average_linkage
from clma.cohorting.contract import CohortingUnit, Evidence
from clma.config import CohortingConfig

__all__ = ["group_by_direction"]


def group_by_direction(
    unit: CohortingUnit,  # noqa: ARG001
    evidence: Evidence,
    config: CohortingConfig,
) -> Clustering:
    """Group clients whose updates point the same way."""
    return average_linkage(
        evidence.distances,
        max_groups=config.max_groups,
        silhouette_floor=config.silhouette_floor,
        silhouette_floor_three=config.silhouette_floor_three,
        pair_threshold=config.pair_threshold,
    )
