"""One round: seal, detect, quarantine, cohort, aggregate, gate, commit, publish, open the next.

Every step is a task whose result is kept, so a failed run is retried where it failed. `nightly`
runs the same body within its own flow run: one run a night, and that one is what an operator
retries.
"""

from __future__ import annotations

from prefect import flow, unmapped

from clma.errors import RoundHeldError
from flows._task_runner import chosen_task_runner
from tasks.aggregate_cohort import aggregate_cohort, average_everybody
from tasks.check_quorum import check_quorum
from tasks.check_voters import check_voters
from tasks.choose_round import ChosenRound, choose_round
from tasks.commit_round import Committed, commit_round
from tasks.decide_round import decide_round
from tasks.form_groups import form_groups
from tasks.name_run import name_run
from tasks.night import Night
from tasks.open_round import open_round
from tasks.place_groups import place_groups
from tasks.publish_missed import publish_missed
from tasks.publish_round import publish_cohort, publish_round, publishing
from tasks.quarantine_clients import quarantine_clients
from tasks.seal_round import seal_round
from tasks.sweep_updates import sweep_updates

__all__ = ["decide_night", "federated_round", "run_round"]


@flow(name="round", task_runner=chosen_task_runner())
def federated_round(
    store: str, federation: str, round_num: int | None = None, tracking_uri: str | None = None
) -> Committed | None:
    """Run the newest round now, whether it is due or not.

    Parameters
    ----------
    store : str
        Folder or URL of the federation.
    federation : str
        Its name.
    round_num : int, optional
        Refuse to run any other round than this one.
    tracking_uri : str, optional
        MLflow store to publish to; default: ``MLFLOW_TRACKING_URI``, or the project's own.
    """
    chosen = choose_round(store, federation, now=True, round_num=round_num)
    if chosen.round_num is None:
        return None
    return run_round(store, federation, chosen, tracking_uri)


def run_round(
    store: str,
    federation: str,
    chosen: ChosenRound,
    tracking_uri: str | None = None,
    *,
    keep_deadline: bool = False,
) -> Committed:
    """Run a chosen round within the current flow run; `keep_deadline` goes to `open_round`.

    Raises
    ------
    RoundHeldError
        If too few clients took part; the next round is open all the same.
    """
    name_run(federation, chosen)
    night = seal_round(store, federation, chosen)
    try:
        check_quorum(night)
    except RoundHeldError:
        open_round(store, federation, night.round_num, keep_deadline)
        raise
    committed = decide_night(night)
    try:
        with publishing(store, federation):
            for cohort_id in committed.cohorts:
                publish_cohort(store, federation, night.round_num, cohort_id, tracking_uri)
            publish_round(store, federation, night.round_num, tracking_uri)
            publish_missed(store, federation, night.round_num, tracking_uri)
    finally:
        # The round is committed: plants must not wait for MLflow. The run still fails, and its
        # retry publishes.
        open_round(store, federation, night.round_num, keep_deadline)
    return committed


def decide_night(night: Night) -> Committed:
    """Run the part of a round that is a pure function of its sealed inputs, and commit it."""
    quarantine = check_voters(night, quarantine_clients(night))
    swept = sweep_updates.map(
        list(quarantine.shards), unmapped(night), unmapped(quarantine)
    ).result()
    consensus = average_everybody.submit(night, quarantine, swept)
    groupings = form_groups.map(
        list(quarantine.units), unmapped(night), unmapped(quarantine), unmapped(swept)
    ).result()
    placed = place_groups(night, quarantine, groupings)
    models = aggregate_cohort.map(list(placed.jobs), unmapped(night), unmapped(swept)).result()
    decided = decide_round(night, quarantine, swept, placed, models, consensus.result())
    return commit_round(night, decided)
