"""Forget a plant everywhere: in the ledger, in MLflow and in Prefect.

    python -m flows.forget --store federations/demo --federation demo plant-03 --reaggregate

Not a flow: it deletes flow runs. Every step can be repeated, so a command that was stopped or that
found a server away is simply given again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from clma.forget import ForgetPlan, forget_client, plan_forget
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from flows._commands import (
    ROOT,
    JsonOption,
    NameOption,
    StoreOption,
    TrackingOption,
    failures_in_one_line,
    orchestrated,
)
from flows._mentions import drop_events

__all__ = ["Forgotten", "forget", "plan"]


@dataclasses.dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed, or would be.

    Parameters
    ----------
    client_id : str
    dry_run : bool
        Nothing was.
    objects_removed, objects_rewritten, entries_redacted : int
        Of the federation's folder and its ledger.
    influenced : int
        Models that the client's data went into.
    models_made_again : int
        Those of them that were made again without it.
    resubmit : tuple of client id
        Clients that have to pull, train and send again for the open round.
    tracking_rounds : int
        Rounds that are written again in MLflow.
    flow_runs, results : int
        Runs of nights that Prefect showed, and kept results of tasks that named the client.
    """

    client_id: str
    dry_run: bool
    objects_removed: int
    objects_rewritten: int
    entries_redacted: int
    influenced: int
    models_made_again: int
    resubmit: tuple[str, ...]
    tracking_rounds: int
    flow_runs: int
    results: int


def plan(federation: Federation, client_id: str, *, reaggregate: bool = False) -> Forgotten:
    """Say what `forget` would remove; needs a Prefect API.

    Raises
    ------
    UnknownClientError
        If the client is not registered.
    RoundStateError
        If a round is sealed and not decided.
    ConflictError
        If a flow run of the federation has not ended.
    """
    from flows._prefect_history import history_of, refuse_runs_in_flight, results_naming

    history = history_of(federation)
    refuse_runs_in_flight(history)
    planned = plan_forget(federation, client_id, reaggregate=reaggregate)
    n_results = len(results_naming(client_id))
    return _forgotten(planned, len(history.ended), n_results, dry_run=True)


def forget(
    federation: Federation,
    client_id: str,
    *,
    reaggregate: bool = False,
    tracking_uri: str | None = None,
    on_progress: Callable[[str], None],
) -> Forgotten:
    """Forget a client in the ledger, in MLflow and in Prefect; needs a Prefect API.

    Parameters
    ----------
    federation : Federation
    client_id : str
    reaggregate : bool
        Make the models that its data went into again without it.
    tracking_uri : str, optional
        MLflow store; default: ``MLFLOW_TRACKING_URI``, or the project's own.
    on_progress : callable
        Told in one line what was done and what comes next.

    Raises
    ------
    UnknownClientError
        If the client is not registered and was never forgotten.
    RoundStateError
        If a round is sealed and not decided.
    ConflictError
        If a flow run of the federation has not ended.
    """
    from flows._prefect_history import (
        delete_results,
        delete_runs,
        history_of,
        refuse_runs_in_flight,
        results_naming,
    )
    from tasks import tracking
    from tasks.publish_round import tracking_place

    refuse_runs_in_flight(history_of(federation))
    planned = forget_client(federation, client_id, reaggregate=reaggregate)
    on_progress(
        f"ledger: {len(planned.removed)} objects removed, {len(planned.replaced)} rewritten"
    )
    tracking.forget_published(federation, tracking_place(tracking_uri), on_progress=on_progress)
    # A night that began while the ledger was changed may have read what it was before.
    history = history_of(federation).before(_forgotten_at(federation, client_id))
    refuse_runs_in_flight(history)
    results = results_naming(client_id)
    on_progress(f"Prefect: deleting {len(history.ended)} flow runs and {len(results)} kept results")
    delete_runs(history.ended)
    delete_results(results)
    return _forgotten(planned, len(history.ended), len(results), dry_run=False)


def _forgotten_at(federation: Federation, client_id: str) -> dt.datetime:
    return max(
        entry.at
        for entry in federation.entries()
        if entry.kind is EntryKind.CLIENT_FORGOTTEN
        and entry.payload["forgotten"]["client_id"] == client_id
    )


def _forgotten(planned: ForgetPlan, n_runs: int, n_results: int, *, dry_run: bool) -> Forgotten:
    rounds = {key.split("/")[1] for key in planned.replaced if key.endswith(".parquet")}
    return Forgotten(
        client_id=planned.client_id,
        dry_run=dry_run,
        objects_removed=len(planned.removed),
        objects_rewritten=len(planned.replaced),
        entries_redacted=len(planned.redacted),
        influenced=len(planned.influenced),
        models_made_again=sum(m.new_digest is not None for m in planned.influenced),
        resubmit=planned.resubmit,
        tracking_rounds=len(rounds),
        flow_runs=n_runs,
        results=n_results,
    )


def _main(
    client: Annotated[str, typer.Argument(help="Id of the plant.")],
    store: StoreOption,
    federation: NameOption,
    reaggregate: Annotated[
        bool,
        typer.Option("--reaggregate", help="Make the models its data went into again without it."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    tracking_uri: TrackingOption = None,
    prefect_home: Annotated[
        Path, typer.Option("--prefect-home", help="Prefect's folder; default: the project's.")
    ] = ROOT / ".prefect",
    as_json: JsonOption = False,
) -> None:
    """Forget a plant: its updates, its rows, its runs and whatever names it."""
    has_own_server = "PREFECT_API_URL" not in os.environ

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    with failures_in_one_line():
        opened = Federation.open(store, federation)
        tell("starting Prefect ...")
        with orchestrated(prefect_home):
            if dry_run:
                forgotten = plan(opened, client, reaggregate=reaggregate)
            else:
                forgotten = forget(
                    opened,
                    client,
                    reaggregate=reaggregate,
                    tracking_uri=tracking_uri,
                    on_progress=tell,
                )
        if not dry_run and has_own_server:
            failed = drop_events(prefect_home / "prefect.db", client)
            if failed:
                tell(failed)
    for client_id in forgotten.resubmit:
        tell(f"{client_id} has to pull, train and send again for the open round")
    typer.echo(json.dumps(dataclasses.asdict(forgotten)) if as_json else _verdict(forgotten))


def _verdict(forgotten: Forgotten) -> str:
    verb = "would be" if forgotten.dry_run else "is"
    return (
        f"{forgotten.client_id} {verb} forgotten: {forgotten.objects_removed} objects removed, "
        f"{forgotten.objects_rewritten} rewritten, {forgotten.entries_redacted} ledger entries "
        f"redacted; {forgotten.tracking_rounds} rounds written again in MLflow; "
        f"{forgotten.flow_runs} flow runs and {forgotten.results} results deleted in Prefect; its "
        f"data went into {forgotten.influenced} models, {forgotten.models_made_again} made again"
    )


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(epilog="Example: python -m flows.forget --store fleet --federation north plant-03")(
        _main
    )
    app()
