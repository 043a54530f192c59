"""Give every drifted client a cohort of its own: the yardstick for what grouping is worth."""

from __future__ import annotations

from clma.cohorting.clustering import Clustering, one_each
from clma.cohorting.contract import CohortingUnit, Evidence
from clma.config import CohortingConfig

__all__ = ["group_one_each"]


def group_one_each(
    unit: CohortingUnit,
    evidence: Evidence,  # noqa: ARG001
    config: CohortingConfig,  # noqa: ARG001
) -> Clustering:
    """Group nobody with anybody."""
    return one_each(len(unit.members))
