"""Make MLflow what the ledger says: publish what is missing, and mend what is other."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from clma.ledger.federation import Federation
from tasks.tracking.forgetting import forget_clients
from tasks.tracking.inventory import open_client
from tasks.tracking.location import Tracking
from tasks.tracking.mending import begin_repair, remove_versions
from tasks.tracking.publish import open_night, publish_rounds
from tasks.tracking.reports import PublishReport

__all__ = ["forget_published", "rebuild"]

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


def forget_published(
    federation: Federation,
    tracking: Tracking,
    *,
    on_progress: Callable[[str], None] = _log.info,
) -> int:
    """Carry over what forgetting clients changed, and no more; return how many clients that were.

    Parameters
    ----------
    federation : Federation
    tracking : Tracking
    on_progress : callable
        Told in one line what comes next.
    """
    client = open_client(tracking)
    if client is None or client.get_experiment_by_name(federation.name) is None:
        on_progress(f"MLflow: {tracking.shown} holds nothing of {federation.name!r}")
        return 0
    with open_night(federation, tracking) as night:
        return forget_clients(night, lambda line: on_progress(f"MLflow: {line}"))
