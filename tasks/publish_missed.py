"""Publish what earlier nights could not."""

from __future__ import annotations

from prefect import get_run_logger, task

from clma.errors import ClmaError
from clma.ledger.federation import Federation
from tasks import tracking
from tasks.night import IO_RETRIES, PINNED_TO_RUN
from tasks.publish_round import tracking_place

__all__ = ["publish_missed"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="publish rounds missed before {round_num}")
def publish_missed(
    store: str, federation: str, round_num: int, tracking_uri: str | None = None
) -> tuple[int, ...]:
    """Publish the earlier rounds that MLflow lacks; return their numbers.

    One that cannot be published (a table of it is damaged, say) costs no later night: it is named
    in a warning, and its own run in Prefect has failed already.
    """
    opened, place = Federation.open(store, federation), tracking_place(tracking_uri)
    missed = [r for r in tracking.missed_rounds(opened, place) if r < round_num]
    return tuple(r for r in missed if _is_published(opened, r, place))


def _is_published(federation: Federation, round_num: int, place: tracking.Tracking) -> bool:
    log = get_run_logger()
    try:
        tracking.publish_whole(federation, round_num, place)
    except tracking.TrackingAwayError:
        raise  # the others would wait as long
    except (ClmaError, tracking.TrackingError, OSError) as error:
        text = " ".join(str(error).split())
        log.warning("round %d is still not in MLflow: %s", round_num, text)
        return False
    log.info("published round %d, which an earlier night could not", round_num)
    return True
