"""Put formed cohorts in force: round 1 opens with them, or clients move with the next round."""

from __future__ import annotations

import datetime as dt

from prefect import get_run_logger, task

from clma.ledger.federation import Federation
from clma.onboarding.carry_out import note_down, open_first_round
from clma.records import ArtifactRef
from tasks.night import IO_RETRIES, PINNED_TO_RUN

__all__ = ["put_in_force"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="put cohorts in force")
def put_in_force(store: str, federation: str, ref: ArtifactRef, again: bool) -> int:
    """Return the round that opened with the cohorts, or will open with them.

    Raises
    ------
    ConflictError
        If another run opened round 1 with other cohorts.
    RoundStateError
        If the plan is not for the next round any more.
    """
    opened = Federation.open(store, federation)
    now = dt.datetime.now(dt.UTC)
    if again:
        round_num = note_down(opened, ref, now=now).round_num + 1
        get_run_logger().info("clients move when round %d opens", round_num)
        return round_num
    state = open_first_round(opened, ref, now=now)
    get_run_logger().info("opened round 1, due %s", f"{state.deadline:%F %R} UTC")
    return 1
