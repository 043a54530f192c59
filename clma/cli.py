"""The ``clma`` command: results on stdout, the rest on stderr, one line for every expected failure.

Exit codes: 0 done, 1 failed or held, 2 wrong usage.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from obstore.exceptions import BaseError
from rich.console import Console
from rich.table import Table

from clma import __version__
from clma.client.pull import PulledModel, pull
from clma.client.submit import SubmitReceipt, submit
from clma.cohorting.given import given_moves
from clma.config import FederationConfig, preset_config
from clma.errors import ClmaError, ConflictError, InvalidConfigError, InvalidUpdateError
from clma.ledger.audit import audit
from clma.ledger.federation import Federation
from clma.ledger.inbox import MESSAGE_FILE
from clma.ledger.keys import inbox_prefix
from clma.ledger.preflight import Health, check_store
from clma.records import FederationState, Phase

__all__ = ["app", "main"]

app = typer.Typer(
    help="Keep a fleet's models right when its plants drift apart.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
client_app = typer.Typer(help="What a plant runs.", no_args_is_help=True)
app.add_typer(client_app, name="client")

StoreOption = Annotated[str, typer.Option("--store", help="Folder or object-store URL.")]
NameOption = Annotated[str, typer.Option("--federation", help="Name of the federation.")]
ClientOption = Annotated[str, typer.Option("--client", help="Id of the plant.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def _example(command: str) -> str:
    return f"Example: {command}"


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Keep a fleet's models right when its plants drift apart."""
    if version:
        typer.echo(f"clma {__version__}")
        raise typer.Exit


@app.command(
    epilog=_example(
        "clma init --store fleet --federation north --model base.safetensors --clients plants.txt"
    )
)
def init(
    store: StoreOption,
    federation: NameOption,
    model: Annotated[Path, typer.Option("--model", help="Model that all plants start from.")],
    clients: Annotated[
        str | None, typer.Option("--clients", help="File with one client id a line; - is stdin.")
    ] = None,
    preset: Annotated[str, typer.Option("--preset", help="Set of settings.")] = "clma",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value over the preset.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a federation and open its first round."""
    config = _config(federation, preset, settings or [])
    now = dt.datetime.now(dt.UTC)
    made = _found(store, config, model, _client_ids(clients), now)
    state = made.open_round(now=now, moves=given_moves(made.state(), config, 1))
    for finding in check_store(made, now=now):
        if finding.health is not Health.OK:
            typer.echo(f"warning: {finding.detail}", err=True)
    facts = {
        "store": made.store.url,
        "federation": made.name,
        "round": state.round_num,
        "deadline": _time(state.deadline),
        "n_clients": len(state.clients),
        "base_digest": state.cohorts["c0"].model_digest,
    }
    _show(
        facts,
        f"federation {made.name} in {made.store.url}: {len(state.clients)} clients, "
        f"round {state.round_num} open until {_time(state.deadline)}",
        as_json=as_json,
    )


@client_app.command(
    "pull",
    epilog=_example(
        "clma client pull --store fleet --federation north --client plant-01 --out m.safetensors"
    ),
)
def client_pull(
    store: StoreOption,
    federation: NameOption,
    client: ClientOption,
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    as_json: JsonOption = False,
) -> None:
    """Fetch the model that a plant trains on next."""
    pulled = pull(store, federation, client, out)
    facts = {
        **_facts(pulled),
        "path": str(pulled.path),
        "drift": pulled.drift.model_dump(mode="json"),
        "deadline": _time(pulled.deadline),
        "confirm_path": None if pulled.confirm_path is None else str(pulled.confirm_path),
    }
    confirm = (
        f"; is the model of {pulled.confirm_cohort} in {pulled.confirm_path} still bad? "
        "(--confirm or --no-confirm with your update)"
        if pulled.confirm_cohort
        else ""
    )
    _show(
        facts,
        f"{out}: model of cohort {pulled.cohort_id} for round {pulled.round_num}{confirm}",
        as_json=as_json,
    )


@client_app.command(
    "submit",
    epilog=_example(
        "clma client submit --store fleet --federation north --client plant-01 "
        "--update m.safetensors --examples 500 --no-drift"
    ),
)
def client_submit(
    store: StoreOption,
    federation: NameOption,
    client: ClientOption,
    update: Annotated[Path, typer.Option("--update", help="The trained model.")],
    examples: Annotated[int, typer.Option("--examples", help="Examples it was trained on.")],
    drift: Annotated[bool, typer.Option("--drift/--no-drift", help="The drift flag.")] = False,
    confirm: Annotated[
        bool | None,
        typer.Option("--confirm/--no-confirm", help="Is the model of the cohort left still bad?"),
    ] = None,
    loss: Annotated[float | None, typer.Option("--loss", help="Sent only if shared.")] = None,
    round_num: Annotated[int | None, typer.Option("--round", help="Round trained for.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a plant's trained model and its flag."""
    receipt = submit(
        store,
        federation,
        client,
        tensors=update,
        n_examples=examples,
        drift_flag=drift,
        confirm=confirm,
        loss=loss,
        round_num=round_num,
    )
    for note in receipt.notes:
        typer.echo(note, err=True)
    verb = "was sent before" if receipt.duplicate else "is sent"
    _show(
        _facts(receipt),
        f"update of {client} for round {receipt.round_num} {verb} ({receipt.digest[:12]})",
        as_json=as_json,
    )


@client_app.command(
    "register",
    epilog=_example("clma client register --store fleet --federation north --client plant-11"),
)
def client_register(
    store: StoreOption, federation: NameOption, client: ClientOption, as_json: JsonOption = False
) -> None:
    """Register a plant; it starts with the root cohort's model."""
    opened = Federation.open(store, federation)
    state = opened.register_client(client)
    facts = {
        "federation": opened.name,
        "client_id": client,
        "joined_round": state.clients[client].joined_round,
    }
    _show(facts, f"{client} takes part from round {facts['joined_round']} on", as_json=as_json)


@app.command(epilog=_example("clma status --store fleet --federation north"))
def status(store: StoreOption, federation: NameOption, as_json: JsonOption = False) -> None:
    """Show the round, the cohorts and where every client stands."""
    opened = Federation.open(store, federation)
    state = opened.state()
    submitted = _submitted(opened, state)
    if as_json:
        _show(_status_facts(opened, state, submitted), "", as_json=True)
        return
    console = Console()
    deadline = f" until {_time(state.deadline)}" if state.phase is Phase.OPEN else ""
    console.print(
        f"federation {opened.name}: round {state.round_num} is {state.phase.value}{deadline}, "
        f"{len(submitted)} of {len(state.clients)} clients have sent",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_cohort_table(state), _client_table(state, submitted))


@app.command(epilog=_example("clma verify --store fleet --federation north"))
def verify(store: StoreOption, federation: NameOption, as_json: JsonOption = False) -> None:
    """Walk the chain and hash every artifact that an entry names."""
    report = audit(Federation.open(store, federation))
    for problem in report.problems:
        typer.echo(problem, err=True)
    _show(
        {**dataclasses.asdict(report), "ok": not report.problems},
        f"{report.n_entries} entries, {report.n_artifacts} artifacts, "
        f"{len(report.problems)} problems",
        as_json=as_json,
    )
    if report.problems:
        raise typer.Exit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; expected failures are one line on stderr and exit code 1."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="clma")
    except (ClmaError, OSError, BaseError) as error:
        first_line = str(error).partition("\n")[0]
        reason = f"{error.reason}: " if isinstance(error, InvalidUpdateError) else ""
        typer.echo(f"clma: {reason}{first_line}", err=True)
        sys.exit(1)


def _config(federation: str, preset: str, settings: Sequence[str]) -> FederationConfig:
    try:
        return preset_config(federation, preset, overrides=settings)
    except InvalidConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _found(
    store: str, config: FederationConfig, model: Path, ids: Sequence[str], now: dt.datetime
) -> Federation:
    _check_schedule(config, ids)
    try:
        return Federation.create(store, config, model, ids, now=now)
    except ConflictError:
        # An init that was interrupted before its first round goes on with the same settings.
        made = Federation.open(store, config.federation)
        if made.state().phase is not Phase.CREATED or made.config != config:
            raise
        return made


def _check_schedule(config: FederationConfig, ids: Sequence[str]) -> None:
    if config.cohorting.method != "given":
        return
    for entry in config.cohorting.schedule:
        missing = sorted(set(ids) - set(entry.labels))
        if missing:
            raise typer.BadParameter(
                f"cohorting.schedule: no label for {missing[0]!r} from round {entry.from_round} on"
            )


def _client_ids(source: str | None) -> list[str]:
    if source is None:
        return []
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidConfigError(
            f"{source} is not UTF-8 text, wanted one client id a line"
        ) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _submitted(opened: Federation, state: FederationState) -> frozenset[str]:
    keys = opened.store.list(inbox_prefix(state.round_num))
    return frozenset(key.split("/")[2] for key in keys if key.endswith(f"/{MESSAGE_FILE}"))


def _status_facts(
    opened: Federation, state: FederationState, submitted: frozenset[str]
) -> dict[str, Any]:
    return {
        "store": opened.store.url,
        "federation": opened.name,
        "round": state.round_num,
        "phase": state.phase.value,
        "deadline": _time(state.deadline),
        "n_entries": len(opened.entries()),
        "cohorts": [
            {**dataclasses.asdict(c), "n_members": len(state.members(c.cohort_id))}
            for c in state.cohorts.values()
        ],
        "clients": [
            {**dataclasses.asdict(c), "submitted": c.client_id in submitted}
            for c in state.clients.values()
        ],
    }


def _cohort_table(state: FederationState) -> Table:
    table = Table("cohort", "parent", "born", "status", "clients", "model", title="Cohorts")
    for cohort in state.cohorts.values():
        table.add_row(
            cohort.cohort_id,
            cohort.parent or "",
            str(cohort.born_round),
            cohort.status.value,
            str(len(state.members(cohort.cohort_id))),
            cohort.model_digest[:12],
        )
    return table


def _client_table(state: FederationState, submitted: frozenset[str]) -> Table:
    table = Table("client", "cohort", "status", "sent", "model", "since round", title="Clients")
    for client in state.clients.values():
        table.add_row(
            client.client_id,
            client.cohort_id,
            client.status.value,
            "yes" if client.client_id in submitted else "no",
            client.serving_digest[:12],
            str(client.serving_since),
        )
    return table


def _facts(record: PulledModel | SubmitReceipt) -> dict[str, Any]:
    facts = dataclasses.asdict(record)
    return {"round": facts.pop("round_num"), **facts}


def _time(value: dt.datetime | None) -> str | None:
    return None if value is None else value.astimezone(dt.UTC).isoformat(timespec="seconds")


def _show(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(facts, sort_keys=True) if as_json else text)


if __name__ == "__main__":
    main()
