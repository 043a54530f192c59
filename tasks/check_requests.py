"""See whether plants ask for the open round to be closed early."""

from __future__ import annotations

import datetime as dt

from prefect import task

from clma.extra_round import ExtraRound, look_at_requests
from clma.ledger.federation import Federation
from tasks.night import IO_RETRIES, PINNED_TO_RUN

__all__ = ["check_requests"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="check requests")
def check_requests(store: str, federation: str) -> ExtraRound:
    """Return what the requests for the open round come to, the same again in a retry."""
    return look_at_requests(Federation.open(store, federation), now=dt.datetime.now(dt.UTC))
