"""Hold a round that too few clients take part in."""

from __future__ import annotations

from prefect import task

import clma.round as steps
from clma.errors import RoundHeldError
from tasks.night import IO_RETRIES, PINNED_TO_RUN, Night, config_of_night, open_federation

__all__ = ["check_quorum"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="check quorum")
def check_quorum(night: Night) -> None:
    """Record a round below quorum as held.

    Raises
    ------
    RoundHeldError
        If it is; the ledger says so, too.
    """
    federation = open_federation(night)
    try:
        steps.check_quorum(
            federation.sealed_round(night.round_num), config_of_night(federation, night)
        )
    except RoundHeldError as error:
        federation.hold_round(str(error), round_num=night.round_num)
        raise
