"""Make MLflow what the ledger says: publish what is missing, and mend what is other."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from clma.ledger.federation import Federation
from tasks.tracking.forgetting import forget_clients
from tasks.tracking.location import Tracking
from tasks.tracking.mending import begin_repair, remove_versions
from tasks.tracking.publish import open_night, publish_rounds
from tasks.tracking.reports import PublishReport

__all__ = ["rebuild"]

_log = logging.getLogger(__name__)


def rebuild(
    federation: Federation,
    tracking: Tracking,
    *,
    repair: bool = False,
    on_progress: Callable[[str], None] = _log.info,
) -> PublishReport:
    """Publish every committed round from the ledger; what is there is left as it is.

    What named a client that was forgotten since is written anew first, and models that were made
    again without it take the place of the old ones.

    Parameters
    ----------
    federation : Federation
    tracking : Tracking
    repair : bool
        Look at what is there, too: write again or remove what is other than the ledger says.
    on_progress : callable
        Told in one line what comes next.
    """
    with open_night(federation, tracking) as night:
        n_forgotten = forget_clients(night, on_progress)
        mended, unwanted = begin_repair(night, on_progress) if repair else (0, ())
        on_progress(f"publishing {len(night.history.rounds)} rounds")
        report = publish_rounds(night, night.history.rounds)
        remove_versions(night, unwanted)
    return dataclasses.replace(report, mended=mended, forgotten=n_forgotten)
