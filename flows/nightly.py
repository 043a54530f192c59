"""What a schedule calls: close what is due, run it, publish, open the next.

    python -m flows.nightly --store federations/demo --federation demo --now

Without ``PREFECT_API_URL`` the command starts a Prefect server of its own for the time of the run.
"""

from __future__ import annotations

if (
    __name__ == "__main__"
):  # Prefect reads its settings when it is imported: the command goes first.
    from flows._commands import run_nightly_command

    run_nightly_command()

from prefect import flow, get_run_logger

from flows._task_runner import chosen_task_runner
from flows.round import run_round
from tasks.choose_round import choose_round
from tasks.commit_round import Committed
from tasks.open_round import open_round

__all__ = ["nightly"]


@flow(name="nightly", task_runner=chosen_task_runner())
def nightly(
    store: str,
    federation: str,
    now: bool = False,
    tracking_uri: str | None = None,
    not_after: int | None = None,
) -> Committed | None:
    """Close the round that is due, decide it, publish it and open the next.

    Parameters
    ----------
    store : str
        Folder or URL of the federation.
    federation : str
        Its name.
    now : bool
        Close the open round before its deadline, with whatever is there, if anything is.
    tracking_uri : str, optional
        MLflow store to publish to; default: ``MLFLOW_TRACKING_URI``, or the project's own.
    not_after : int, optional
        The newest round when the night was asked for: a night that finds it closed by another one
        leaves the round that was opened since alone.
    """
    chosen = choose_round(store, federation, now, not_after=not_after)
    get_run_logger().info(chosen.detail)
    if chosen.round_num is None:
        # A federation whose making was interrupted has no round yet.
        open_round(store, federation, after_round=0)
        return None
    return run_round(store, federation, chosen, tracking_uri)
