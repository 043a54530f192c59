"""``clma verify``, ``doctor``, ``forget``: what the store holds, what it should, and no more."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
from typing import Annotated

import typer

from clma.cli.options import JsonOption, NameOption, StoreOption, show
from clma.doctor import Projection, examine
from clma.errors import MissingExtraError
from clma.ledger.audit import audit
from clma.ledger.federation import Federation

__all__ = ["doctor", "forget", "verify"]


def verify(store: StoreOption, federation: NameOption, as_json: JsonOption = False) -> None:
    """Walk the chain and hash every artifact that an entry names."""
    report = audit(Federation.open(store, federation))
    for problem in report.problems:
        typer.echo(problem, err=True)
    show(
        {**dataclasses.asdict(report), "ok": not report.problems},
        f"{report.n_entries} entries, {report.n_artifacts} artifacts, "
        f"{len(report.problems)} problems",
        as_json=as_json,
    )
    if report.problems:
        raise typer.Exit(1)


def doctor(
    store: StoreOption,
    federation: NameOption,
    tracking_uri: Annotated[
        str | None, typer.Option("--tracking-uri", help="MLflow store; default: the project's own.")
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Hash every file of every round and version in MLflow."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the ledger with disk, settings and MLflow; say how to mend each difference."""
    opened = Federation.open(store, federation)
    projections = _projections(tracking_uri, thorough)
    report = examine(opened, now=dt.datetime.now(dt.UTC), projections=projections)
    for difference in report.differences:
        typer.echo(difference.line, err=True)
    for note in report.notes:
        typer.echo(f"note: {note}", err=True)
    facts = {**dataclasses.asdict(report), "mlflow": bool(projections), "ok": report.is_well}
    n_found = len(report.differences)
    text = (
        f"{report.n_entries} entries, {report.n_artifacts} artifacts, "
        f"{len(report.findings)} checks of the place: "
        + ("all is well" if report.is_well else f"{n_found} to mend")
    )
    show(facts, text, as_json=as_json)
    if not report.is_well:
        raise typer.Exit(1)


def _projections(tracking_uri: str | None, thorough: bool) -> list[Projection]:
    """Return the comparison with MLflow where the pipeline is installed."""
    try:
        # Not a dependency: the library has no server software, a checkout of the pipeline has.
        module = importlib.import_module("tasks.tracking.compare")
    except ImportError as error:
        typer.echo(f"MLflow was not looked at: {error}", err=True)
        return []
    projection: Projection = module.comparison_with(
        tracking_uri, thorough=thorough, on_progress=lambda line: typer.echo(line, err=True)
    )
    return [projection]


def forget(
    client: Annotated[str, typer.Argument(help="Id of the plant.")],
    store: StoreOption,
    federation: NameOption,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    reaggregate: Annotated[
        bool,
        typer.Option("--reaggregate", help="Make the models its data went into again without it."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a plant's updates, rows and artifacts; list the models that its data went into."""
    try:
        from clma.forget import forget_client, plan_forget
    except ImportError as error:
        raise MissingExtraError(
            f"{error}: forgetting rewrites tables, install clma[pipeline]"
        ) from None
    opened = Federation.open(store, federation)
    act = plan_forget if dry_run else forget_client
    plan = act(opened, client, reaggregate=reaggregate)
    for model in plan.influenced:
        new = "" if model.new_digest is None else f", made again as {model.new_digest[:12]}"
        typer.echo(
            f"round {model.round_num} cohort {model.cohort_id}: model {model.model_digest[:12]}, "
            f"share {model.share:.1%}{new}",
            err=True,
        )
    for client_id in plan.resubmit:
        typer.echo(f"{client_id} has to pull, train and send again for the open round", err=True)
    verb = "would be" if dry_run else "is"
    show(
        {**dataclasses.asdict(plan), "dry_run": dry_run},
        f"{client} {verb} forgotten: {len(plan.removed)} objects removed, {len(plan.replaced)} "
        f"rewritten, {len(plan.redacted)} ledger entries redacted; its data went into "
        f"{len(plan.influenced)} models",
        as_json=as_json,
    )
    if not dry_run:
        where = f"--store {store} --federation {federation}"
        typer.echo(f"MLflow and Prefect, too: python -m flows.forget {where} {client}", err=True)
