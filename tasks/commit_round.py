"""Make a round's decision true: the five tables, then one ledger entry."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import get_run_logger, task

from tasks.brief_log import log_lines
from tasks.decide_round import Decided, load_decided
from tasks.night import IO_RETRIES, PINNED_TO_RUN, Night, discard_bytes, open_federation

__all__ = ["Committed", "commit_round"]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a night came to.

    Parameters
    ----------
    round_num : int
    cohorts : tuple of str
        Active ones, in the order of birth.
    moves : mapping of client id to str
        ``old -> new`` for every client that changed cohort.
    """

    round_num: int
    cohorts: tuple[str, ...]
    moves: dict[str, str]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="commit round")
def commit_round(night: Night, decided: Decided) -> Committed:
    """Record the decision; a second time, the same decision changes nothing."""
    decision, after = load_decided(night, decided)
    federation = open_federation(night)
    federation.commit_round(decision, after)
    discard_bytes(federation, night)
    moves = {
        row.client_id: f"{row.cohort_before} -> {row.cohort_after}"
        for row in decision.assignments
        if row.cohort_before != row.cohort_after
    }
    log = get_run_logger()
    log_lines(log.info, (f"{client}: {move}" for client, move in moves.items()), "assignments")
    cohorts = tuple(c.cohort_id for c in after.active_cohorts())
    log.info("committed round %d: cohorts %s", night.round_num, ", ".join(cohorts))
    return Committed(night.round_num, cohorts, moves)
