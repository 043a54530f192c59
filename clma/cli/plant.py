"""``clma client``: what a plant runs, and how it is taken in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clma.cli.options import (
    ClientOption,
    JsonOption,
    KeyOption,
    NameOption,
    PlantsStoreOption,
    StoreOption,
    example,
    show,
    time_text,
)
from clma.cli.plant_status import client_status, client_watch
from clma.cli.sign import client_sign
from clma.client.ask import RequestReceipt, request_round
from clma.client.pull import PulledModel, models_of_choice, pull
from clma.client.submit import SubmitReceipt, submit
from clma.ledger.federation import Federation
from clma.ledger.keys import check_client_id, printable
from clma.updates.signing import create_key, fingerprint

__all__ = ["client_app"]

client_app = typer.Typer(help="What a plant runs.", no_args_is_help=True)


@client_app.command(
    "keygen", epilog=example("clma client keygen --client plant-01 --key plant-01.key")
)
def keygen(
    client: ClientOption,
    key: Annotated[Path, typer.Option("--key", help="File to write; it never leaves the plant.")],
    as_json: JsonOption = False,
) -> None:
    """Make a plant's signing key; the line it prints is for the operator."""
    check_client_id(client)
    made = create_key(key)
    facts = {"client_id": client, "public_key": made.public, "key_id": fingerprint(made.public)}
    typer.echo(f"{key}: private key, keep it at the plant", err=True)
    show(facts, f"{client} {made.public}", as_json=as_json)


@client_app.command(
    "pull",
    epilog=example(
        "clma client pull --store fleet --federation north --client plant-01 --out m.safetensors"
    ),
)
def client_pull(
    store: PlantsStoreOption,
    federation: NameOption,
    client: ClientOption,
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    drifted: Annotated[
        bool,
        typer.Option("--drifted", help="Its model became bad: fetch what there is to choose from."),
    ] = False,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch the model that a plant trains on next."""
    pulled = pull(store, federation, client, out, drifted=drifted, key=key)
    if pulled.offline is not None:
        typer.echo(
            f"the store cannot be reached, the model fetched last serves: {pulled.offline}",
            err=True,
        )
    facts = {
        **_facts(pulled),
        "path": str(pulled.path),
        "choice": [{**dataclasses.asdict(m), "path": str(m.path)} for m in pulled.choice],
        "drift": pulled.drift.model_dump(mode="json"),
        "choice_rule": None if pulled.choice_rule is None else pulled.choice_rule.model_dump(),
        "deadline": time_text(pulled.deadline),
        "confirm_path": None if pulled.confirm_path is None else str(pulled.confirm_path),
    }
    rule = pulled.choice_rule
    better = "the best of " if rule is None else "the best, if it is clearly better, of "
    choice = (
        f"; or train {better}"
        + ", ".join(f"{m.cohort_id} in {m.path}" for m in pulled.choice[1:] if m.trainable)
        + " (--trained-from with your update)"
        if any(m.trainable for m in pulled.choice[1:])
        else ""
    )
    takes = pulled.confirm_takes
    confirm = (
        f"; is the model of {pulled.confirm_cohort} in {pulled.confirm_path} still bad? "
        f"(--confirm or --no-confirm with your update{', and train it if not' * takes})"
        if pulled.confirm_cohort
        else ""
    )
    show(
        facts,
        f"{out}: model of cohort {pulled.cohort_id} for round {pulled.round_num}{choice}{confirm}",
        as_json=as_json,
    )


@client_app.command(
    "submit",
    epilog=example(
        "clma client submit --store fleet --federation north --client plant-01 "
        "--update m.safetensors --examples 500 --no-drift --key plant-01.key"
    ),
)
def client_submit(
    store: PlantsStoreOption,
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
    trained_from: Annotated[
        str | None,
        typer.Option(
            "--trained-from", help="Cohort whose model was chosen, where there is a choice."
        ),
    ] = None,
    losses: Annotated[
        str | None,
        typer.Option("--losses", help="Loss of each model of choice: c0=0.31,c1=0.95."),
    ] = None,
    round_num: Annotated[int | None, typer.Option("--round", help="Round trained for.")] = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a plant's trained model and its flag."""
    models = {}
    if trained_from is not None or losses is not None:
        models = models_of_choice(store, federation, client, key=key)
    receipt = submit(
        store,
        federation,
        client,
        tensors=update,
        n_examples=examples,
        drift_flag=drift,
        confirm=confirm,
        loss=loss,
        losses=_losses_by_model(losses, models),
        round_num=round_num,
        base_digest=None if trained_from is None else _model_of(trained_from, models),
        key=key,
    )
    for note in receipt.notes:
        typer.echo(note, err=True)
    verb = "was sent before" if receipt.duplicate else "is sent"
    show(
        _facts(receipt),
        f"update of {client} for round {receipt.round_num} {verb} ({receipt.digest[:12]})",
        as_json=as_json,
    )


client_app.command(
    "sign",
    epilog=example(
        "clma client sign --store fleet --federation north --client plant-01 "
        "--samples windows.npy --labels labels.npy --encoder sensor-stats:ranges.toml "
        "--key plant-01.key"
    ),
)(client_sign)


client_app.command(
    "status",
    epilog=example(
        "clma client status --store fleet --federation north --client plant-01 --key plant-01.key"
    ),
)(client_status)

client_app.command(
    "watch",
    epilog=example(
        "clma client watch --store fleet --federation north --client plant-01 --model m.safetensors"
    ),
)(client_watch)


@client_app.command(
    "request",
    epilog=example(
        "clma client request --store fleet --federation north --client plant-01 --key plant-01.key"
    ),
)
def client_request(
    store: PlantsStoreOption,
    federation: NameOption,
    client: ClientOption,
    measure: Annotated[
        str, typer.Option("--measure", help="What became bad: loss, or a surrogate's name.")
    ] = "loss",
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask for the open round to be closed early: the deployed model became bad."""
    receipt = request_round(store, federation, client, measure=measure, key=key)
    verb = "was asked for before" if receipt.duplicate else "is asked for"
    show(
        _facts(receipt),
        f"{client}: an early end of round {receipt.round_num} {verb}",
        as_json=as_json,
    )


@client_app.command(
    "register",
    epilog=example("clma client register --store fleet --federation north --client plant-11"),
)
def client_register(
    store: StoreOption,
    federation: NameOption,
    client: ClientOption,
    public_key: Annotated[
        str | None, typer.Option("--public-key", help="As 'clma client keygen' printed it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Register a plant; it starts with the root cohort's model."""
    opened = Federation.open(store, federation)
    state = opened.register_client(client, public_key=public_key)
    facts = {
        "federation": opened.name,
        "client_id": client,
        "joined_round": state.clients[client].joined_round,
        "key_id": None if public_key is None else fingerprint(public_key),
    }
    show(facts, f"{client} takes part from round {facts['joined_round']} on", as_json=as_json)


def _model_of(cohort_id: str, models: Mapping[str, str]) -> str:
    if cohort_id not in models:
        known = ", ".join(models) or "none: its method leaves no choice"
        raise typer.BadParameter(
            f"cohort {printable(cohort_id)!r} is no choice of this client, wanted one of {known}"
        )
    return models[cohort_id]


def _losses_by_model(text: str | None, models: Mapping[str, str]) -> dict[str, float]:
    losses: dict[str, float] = {}
    for part in (text or "").split(",") if text else ():
        cohort_id, _, value = part.strip().partition("=")
        try:
            losses[_model_of(cohort_id, models)] = float(value)
        except ValueError:
            raise typer.BadParameter(
                f"--losses: {printable(part)!r}, wanted COHORT=NUMBER, several with commas between"
            ) from None
    return losses


def _facts(record: PulledModel | SubmitReceipt | RequestReceipt) -> dict[str, Any]:
    facts = dataclasses.asdict(record)
    return {"round": facts.pop("round_num"), **facts}
