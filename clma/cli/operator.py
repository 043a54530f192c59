"""``clma init``, ``status`` and ``configure``: what the operator of a federation runs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from clma.cli.options import (
    JsonOption,
    NameOption,
    SettingsOption,
    StoreOption,
    show,
    time_text,
)
from clma.cohorting.opening import check_source
from clma.config import (
    FederationConfig,
    changed_settings,
    override_config,
    parse_config,
    preset_config,
)
from clma.errors import ConflictError, InvalidConfigError
from clma.ledger.federation import Federation
from clma.ledger.inbox import MESSAGE_FILE
from clma.ledger.keys import CONFIG_KEY, inbox_prefix
from clma.ledger.preflight import Health, check_store
from clma.next_round import open_next_round
from clma.parameters.output_layer import output_tensors
from clma.records import ClientStatus, FederationState, Phase

__all__ = ["configure", "init", "status"]


def init(
    store: StoreOption,
    federation: NameOption,
    model: Annotated[Path, typer.Option("--model", help="Model that all plants start from.")],
    clients: Annotated[
        str | None,
        typer.Option(
            "--clients", help="File with a client id, and its public key, a line; - is stdin."
        ),
    ] = None,
    preset: Annotated[str, typer.Option("--preset", help="Set of settings.")] = "clma",
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a federation and open its first round, unless its first cohorts are found first."""
    config = _config(federation, preset, settings or [])
    now = dt.datetime.now(dt.UTC)
    made = _found(store, config, model, _read_clients(clients), now)
    if config.onboarding.method == "none":
        open_next_round(made, now=now)
    state = made.state()
    facts = {
        "store": made.store.url,
        "federation": made.name,
        "round": state.round_num,
        "deadline": time_text(state.deadline),
        "n_clients": len(state.clients),
        "base_digest": state.cohorts["c0"].model_digest,
    }
    _say_who_can_speak(config, state)
    for finding in check_store(made, now=now):
        if finding.health is not Health.OK:
            typer.echo(f"warning: {finding.detail}", err=True)
    next_step = f"round {state.round_num} open until {time_text(state.deadline)}"
    if state.phase is Phase.CREATED:
        next_step = (
            "no round is open: plants send signatures of their data ('clma client sign'), then "
            f"python -m flows.onboard --store {made.store.url} --federation {made.name} --apply "
            "forms cohorts and opens round 1"
        )
    show(
        facts,
        f"federation {made.name} in {made.store.url}: {len(state.clients)} clients, {next_step}",
        as_json=as_json,
    )


def status(store: StoreOption, federation: NameOption, as_json: JsonOption = False) -> None:
    """Show the round, the cohorts and where every client stands."""
    opened = Federation.open(store, federation)
    state = opened.state()
    submitted = _submitted(opened, state)
    stray = opened.stray_settings()
    if stray:
        typer.echo(stray, err=True)
    if as_json:
        show(_status_facts(opened, state, submitted), "", as_json=True)
        return
    console = Console()
    deadline = f" until {time_text(state.deadline)}" if state.phase is Phase.OPEN else ""
    console.print(
        f"federation {opened.name}: round {state.round_num} is {state.phase.value}{deadline}, "
        f"{len(submitted)} of {len(state.clients)} clients have sent",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_cohort_table(state), _client_table(state, submitted))


def configure(
    store: StoreOption,
    federation: NameOption,
    settings: SettingsOption = None,
    source: Annotated[
        Path | None, typer.Option("--file", help="A federation.toml to put in force.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Put the store's edited federation.toml in force.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Change settings: they decide the open round and those after it, and are kept for each."""
    opened = Federation.open(store, federation)
    before = opened.config
    after = override_config(_wanted_config(opened, source, apply), settings or [])
    if after.signature_kind != before.signature_kind:
        check_source(after, None)
    if after.cohorting.output_layer != before.cohorting.output_layer:
        output_tensors(opened.spec, after.cohorting)
    changed = changed_settings(before, after)
    if not dry_run:
        opened.configure(after)
        opened.write_operators_copy()
    lines = [f"{name}: {old} -> {new}" for name, (old, new) in changed.items()]
    verb = "would change" if dry_run else "changed"
    facts = {"changed": {n: list(values) for n, values in changed.items()}, "dry_run": dry_run}
    show(facts, "\n".join(lines) or f"no setting {verb}", as_json=as_json)


def _wanted_config(opened: Federation, source: Path | None, apply: bool) -> FederationConfig:
    if source is not None and apply:
        raise typer.BadParameter("--file and --apply exclude each other")
    if source is not None:
        return parse_config(source.read_text(encoding="utf-8", errors="replace"))
    if not apply:
        return opened.config
    text = opened.operators_copy()
    if text is None:
        raise InvalidConfigError(f"{CONFIG_KEY} is missing in {opened.store.url}")
    return parse_config(text)


def _config(federation: str, preset: str, settings: Sequence[str]) -> FederationConfig:
    try:
        config = preset_config(federation, preset, overrides=settings)
        check_source(config, None)
    except InvalidConfigError as error:
        raise typer.BadParameter(str(error)) from None
    return config


def _found(
    store: str,
    config: FederationConfig,
    model: Path,
    clients: Mapping[str, str | None],
    now: dt.datetime,
) -> Federation:
    _check_schedule(config, list(clients))
    keys = {client_id: key for client_id, key in clients.items() if key is not None}
    try:
        return Federation.create(store, config, model, clients, public_keys=keys, now=now)
    except ConflictError:
        # An init that was interrupted before its first round goes on with the same settings.
        made = Federation.open(store, config.federation)
        if made.state().phase is not Phase.CREATED or made.config != config:
            raise
        made.write_operators_copy()
        return made


def _say_who_can_speak(config: FederationConfig, state: FederationState) -> None:
    if config.identity.updates == "unsigned":
        typer.echo(
            "updates are not signed: whoever can write to the store can speak for any client",
            err=True,
        )
        return
    n_missing = sum(client_id not in state.keys for client_id in state.clients)
    if n_missing:
        typer.echo(
            f"{n_missing} of {len(state.clients)} clients have no key yet: 'clma client keygen' at "
            "the plant makes one, 'clma key add' registers it; until then its updates are refused",
            err=True,
        )


def _check_schedule(config: FederationConfig, ids: Sequence[str]) -> None:
    if config.cohorting.method != "given":
        return
    for entry in config.cohorting.schedule:
        missing = sorted(set(ids) - set(entry.labels))
        if missing:
            raise typer.BadParameter(
                f"cohorting.schedule: no label for {missing[0]!r} from round {entry.from_round} on"
            )


def _read_clients(source: str | None) -> dict[str, str | None]:
    if source is None:
        return {}
    wanted = "wanted a client id, and its public key if it has one, a line"
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidConfigError(f"{source} is not UTF-8 text, {wanted}") from None
    clients: dict[str, str | None] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if len(words) > 2:
            raise InvalidConfigError(f"{source}, line {number} has {len(words)} words, {wanted}")
        if words and words[0] in clients:
            raise ConflictError(f"{source}, line {number}: client {words[0]!r} is there twice")
        if words:
            clients[words[0]] = words[1] if len(words) == 2 else None
    return clients


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
        "deadline": time_text(state.deadline),
        "n_entries": opened.journal.n_entries(),
        "cohorts": [
            {**dataclasses.asdict(c), "n_members": len(state.members(c.cohort_id))}
            for c in state.cohorts.values()
        ],
        "clients": [
            {
                **dataclasses.asdict(c),
                "submitted": c.client_id in submitted,
                "n_keys": _n_keys(state, c.client_id),
            }
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
    table = Table(
        "client", "cohort", "status", "sent", "keys", "model", "since round", title="Clients"
    )
    for client in state.clients.values():
        if client.status is ClientStatus.FORGOTTEN:
            continue
        table.add_row(
            client.client_id,
            client.cohort_id,
            client.status.value,
            "yes" if client.client_id in submitted else "no",
            str(_n_keys(state, client.client_id)),
            client.serving_digest[:12],
            str(client.serving_since),
        )
    return table


def _n_keys(state: FederationState, client_id: str) -> int:
    return sum(key.revoked_round is None for key in state.keys.get(client_id, ()))
