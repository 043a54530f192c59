"""Group by the direction of updates: average linkage on cosine distances.

Our default. The cosine metric with average linkage is the one of one-shot clustered federated
learning (PACFL, FECFL); here it is applied to updates, within one origin cohort.
"""

from __future__ import annotations

from functools import partial

from clma.cohorting.clustering import NO_SPLIT, Clustering, average_linkage
from clma.cohorting.contract import CohortingUnit, Evidence
from clma.cohorting.madd import madd_distances
from clma.config import CohortingConfig

__all__ = ["group_by_direction"]


def group_by_direction(
    unit: CohortingUnit,  # noqa: ARG001
    evidence: Evidence,
    config: CohortingConfig,
) -> Clustering:
    """Group clients whose updates point the same way.

    Notes
    -----
    With ``metric = "madd"`` a split is looked for in how the others see each client. Whether a pair
    is alike where none stands out is still a matter of its cosine: MADD has no absolute scale.
    """
    by_cosine = partial(
        average_linkage,
        evidence.distances,
        max_groups=config.max_groups,
        pair_threshold=config.pair_threshold,
        split_ceiling=config.split_ceiling,
    )
    floors = config.silhouette_floor, config.silhouette_floor_three
    if config.metric == "madd":
        split = average_linkage(
            madd_distances(evidence.distances),
            max_groups=config.max_groups,
            silhouette_floor=floors[0],
            silhouette_floor_three=floors[1],
            pair_threshold=-1.0,
        )
        if max(split.labels, default=0) > 0 and len(split.labels) > 2:
            return split
        floors = NO_SPLIT, NO_SPLIT
    return by_cosine(silhouette_floor=floors[0], silhouette_floor_three=floors[1])
