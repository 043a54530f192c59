"""Decide a recorded night's groups again under other settings: where would everybody have gone?

Examples
--------
>>> sorted(destinations(Measured(), CohortingConfig()))
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clma.calibration.hindsight import Pair, Recall
from clma.calibration.measure import Measured
from clma.cohorting.form import form_groups
from clma.config import CohortingConfig

__all__ = ["apart", "destinations", "recalled"]

NEW = "new:"
"""Before the first member of a group that founds a cohort."""


def destinations(measured: Measured, config: CohortingConfig) -> dict[str, str]:
    """Return the cohort that every compared client is sent to; a new one is called ``new:...``.

    Parameters
    ----------
    measured : Measured
        Measured under the same settings, but for thresholds.
    config : CohortingConfig
    """
    found: dict[str, str] = {}
    for unit, evidence in zip(measured.units, measured.evidence, strict=True):
        grouping = form_groups(unit, evidence, config)
        origin = {m.client_id: m.origin_cohort for m in unit.members}
        found |= {client_id: origin[client_id] for client_id in grouping.still}
        for group in grouping.groups:
            to = origin[group.members[0]] if group.stays else group.recall_cohort
            found |= dict.fromkeys(group.members, to or f"{NEW}{min(group.members)}")
    return found


def apart(pairs: Iterable[Pair], went: Mapping[int, Mapping[str, str]]) -> list[bool]:
    """Tell of each pair whether its two clients go to different cohorts.

    Parameters
    ----------
    pairs : iterable of Pair
    went : mapping of round number to destinations
    """
    return [went[p.round_num][p.first] != went[p.round_num][p.second] for p in pairs]


def recalled(recalls: Iterable[Recall], went: Mapping[int, Mapping[str, str]]) -> list[bool]:
    """Tell of each client whether it is recalled to the cohort in question; of none, to any."""
    sent = [(r.cohort_id, went[r.round_num][r.client_id]) for r in recalls]
    return [not to.startswith(NEW) if cohort is None else to == cohort for cohort, to in sent]
