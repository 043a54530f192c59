"""Close the open round early, because plants whose deployed models became bad ask for it.

    python -m flows.extra_round --store federations/demo --federation demo

For a timer of a few minutes: where nobody asks, nothing is started and nothing is done.
"""

from __future__ import annotations

if (
    __name__ == "__main__"
):  # Prefect reads its settings when it is imported: the command goes first.
    from flows._extra_round_command import run_extra_round_command

    run_extra_round_command()

from prefect import flow, get_run_logger

from flows._task_runner import chosen_task_runner
from flows.round import run_round
from tasks.check_requests import check_requests
from tasks.choose_round import choose_round
from tasks.commit_round import Committed

__all__ = ["extra_round"]


@flow(name="extra_round", task_runner=chosen_task_runner())
def extra_round(store: str, federation: str, tracking_uri: str | None = None) -> Committed | None:
    """Close the open round if enough plants ask for it; the next one is due when this one was.

    Parameters
    ----------
    store : str
        Folder or URL of the federation.
    federation : str
        Its name.
    tracking_uri : str, optional
        MLflow store to publish to; default: ``MLFLOW_TRACKING_URI``, or the project's own.
    """
    asked = check_requests(store, federation)
    get_run_logger().info(asked.detail)
    if not asked.is_due:
        return None
    chosen = choose_round(store, federation, True, not_after=asked.round_num)
    if chosen.round_num is None:
        return None
    return run_round(store, federation, chosen, tracking_uri, keep_deadline=True)
