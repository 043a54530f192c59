"""``clma key``: which keys a plant's updates may be signed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from clma.cli.options import ClientOption, JsonOption, NameOption, StoreOption, example, show
from clma.ledger.federation import Federation
from clma.records import ClientKey
from clma.updates.signing import fingerprint

__all__ = ["key_app"]

key_app = typer.Typer(help="Keys that updates are signed with.", no_args_is_help=True)


@key_app.command(
    "add",
    epilog=example(
        "clma key add --store fleet --federation north --client plant-01 --public-key ed25519:..."
    ),
)
def key_add(
    store: StoreOption,
    federation: NameOption,
    client: ClientOption,
    public_key: Annotated[
        str, typer.Option("--public-key", help="As 'clma client keygen' printed it.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Register a key; to rotate, add the new one, then revoke the old one."""
    Federation.open(store, federation).add_key(client, public_key)
    facts = {"client_id": client, "key_id": fingerprint(public_key)}
    show(facts, f"{client} signs with key {facts['key_id']} from now on", as_json=as_json)


@key_app.command(
    "revoke",
    epilog=example(
        "clma key revoke --store fleet --federation north --client plant-01 "
        "--key-id 0f3c9a5e7d21b684"
    ),
)
def key_revoke(
    store: StoreOption,
    federation: NameOption,
    client: ClientOption,
    key_id: Annotated[str, typer.Option("--key-id", help="As 'clma key list' shows it.")],
    as_json: JsonOption = False,
) -> None:
    """Refuse what a key signs, from the round that is sealed next on."""
    state = Federation.open(store, federation).revoke_key(client, key_id)
    left = [k for k in state.keys[client] if k.revoked_round is None]
    facts = {"client_id": client, "key_id": key_id, "n_valid_keys": len(left)}
    show(facts, f"{client}: key {key_id} is revoked, {len(left)} left", as_json=as_json)


@key_app.command("list", epilog=example("clma key list --store fleet --federation north"))
def key_list(
    store: StoreOption,
    federation: NameOption,
    client: Annotated[str | None, typer.Option("--client", help="Of one plant only.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show all keys, revoked ones too."""
    state = Federation.open(store, federation).state()
    keys = {c: k for c, k in state.keys.items() if client in {None, c}}
    facts = {"keys": {c: [_facts(key) for key in theirs] for c, theirs in keys.items()}}
    lines = [line for c, theirs in keys.items() for line in _lines(c, theirs)]
    show(facts, "\n".join(lines) or "no key is registered", as_json=as_json)


def _facts(key: ClientKey) -> dict[str, Any]:
    return {
        "key_id": fingerprint(key.public),
        "public_key": key.public,
        "added_round": key.added_round,
        "revoked_round": key.revoked_round,
    }


def _lines(client_id: str, keys: Sequence[ClientKey]) -> list[str]:
    return [
        f"{client_id}  {fingerprint(key.public)}  since round {key.added_round}"
        + ("" if key.revoked_round is None else f", revoked in round {key.revoked_round}")
        for key in keys
    ]
