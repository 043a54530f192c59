"""Open the next round."""

from __future__ import annotations

import datetime as dt

from prefect import get_run_logger, task

from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.next_round import open_next_round
from tasks.night import IO_RETRIES, PINNED_TO_RUN

__all__ = ["open_round"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="open the next round")
def open_round(store: str, federation: str, after_round: int, keep_deadline: bool = False) -> int:
    """Open the round after `after_round`, if that is the newest one; return the newest number.

    Parameters
    ----------
    store, federation : str
    after_round : int
    keep_deadline : bool
        That one was closed before its time: the next one is due when it was.
    """
    opened = Federation.open(store, federation)
    state = opened.state()
    if state.round_num == after_round:
        state = open_next_round(opened, now=dt.datetime.now(dt.UTC), keep_deadline=keep_deadline)
        logger = get_run_logger()
        logger.info("opened round %d, due %s", state.round_num, f"{state.deadline:%F %R} UTC")
        entry = opened.journal.find(EntryKind.ROUND_OPENED, state.round_num)
        evidence = {} if entry is None else entry.payload.get("onboarding", {})
        for line in evidence.get("refused", {}).values():
            logger.warning("not placed: %s", line)
    return state.round_num
