"""What a round came to, in numbers that Flower's reports can hold."""

from __future__ import annotations

from clma.adapters.flower.exchange import ClosedRound
from clma.records import ClientStatus, Cohort, CohortStatus, FederationState, cohort_number

__all__ = ["largest_cohort", "round_counts"]


def round_counts(closed: ClosedRound, state: FederationState) -> dict[str, int]:
    """Count what a round decided; the first four have the names of fed-clma.

    Parameters
    ----------
    closed : ClosedRound
    state : FederationState
        After it.
    """
    before = closed.before.cohorts
    n_merged = sum(
        state.cohorts[cohort_id].status is CohortStatus.MERGED
        and before[cohort_id].status is not CohortStatus.MERGED
        for cohort_id in before
    )
    drift = () if closed.outcome is None else closed.outcome.decision.drift
    cohorting = () if closed.outcome is None else closed.outcome.decision.cohorting
    statuses = [client.status for client in state.clients.values()]
    return {
        "clma-num-cohorts": len(state.active_cohorts()),
        "clma-num-drifted": sum(row.drift_flag for row in drift),
        "clma-num-new-cohorts": len(state.cohorts.keys() - before.keys()),
        "clma-num-merged-cohorts": n_merged,
        "clma-num-recalled": sum(row.decision == "recalled" for row in cohorting),
        "clma-num-quarantined": statuses.count(ClientStatus.QUARANTINED),
        "clma-num-accepted": len(closed.accepted),
    }


def largest_cohort(state: FederationState) -> Cohort:
    """Return the cohort with the most members, of equally large ones the oldest."""
    return max(
        state.cohorts.values(),
        key=lambda c: (len(state.members(c.cohort_id)), -cohort_number(c.cohort_id)),
    )
