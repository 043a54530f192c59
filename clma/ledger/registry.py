"""Who takes part: clients under ids that stay unique on every file system, and their keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from clma.errors import ConflictError, UnknownClientError
from clma.ledger.keys import check_client_id, printable
from clma.records import ROOT_COHORT, ClientKey, ClientState, ClientStatus
from clma.updates.signing import check_public_key, fingerprint

__all__ = ["register_clients", "register_keys", "revoke_key"]

Keys = Mapping[str, tuple[ClientKey, ...]]


def register_clients(
    known: Mapping[str, ClientState],
    client_ids: Iterable[str],
    serving_digest: str,
    *,
    joined_round: int = 1,
    serving_since: int = 0,
) -> dict[str, ClientState]:
    """Return the known clients and new ones, which start in the root cohort.

    Parameters
    ----------
    known : mapping of client_id to ClientState
        Not modified.
    client_ids : iterable of str
    serving_digest : str
        Model that the new ones are sent.
    joined_round, serving_since : int
        Rounds from which on they take part and are served that model.

    Raises
    ------
    UnknownClientError
        If an id is not allowed.
    ConflictError
        If an id is taken, in whatever case.
    """
    clients = dict(known)
    taken = {client_id.lower(): client_id for client_id in clients}
    for client_id in client_ids:
        lower = check_client_id(client_id).lower()
        if lower in taken:
            raise ConflictError(f"client {client_id!r} is already registered, as {taken[lower]!r}")
        taken[lower] = client_id
        clients[client_id] = ClientState(
            client_id,
            ROOT_COHORT,
            ClientStatus.ACTIVE,
            serving_digest,
            serving_since=serving_since,
            joined_round=joined_round,
        )
    return clients


def register_keys(
    known: Keys, new: Mapping[str, str], clients: Mapping[str, ClientState], *, round_num: int
) -> dict[str, tuple[ClientKey, ...]]:
    """Return the known keys and new ones; a key that its client has already changes nothing.

    Parameters
    ----------
    known : mapping of client_id to tuple of ClientKey
        Not modified.
    new : mapping of client_id to str
        ``ed25519:...``
    clients : mapping of client_id to ClientState
        All registered ones.
    round_num : int
        Newest round.

    Raises
    ------
    UnknownClientError
        If a client is not registered.
    InvalidConfigError
        If a key is none.
    ConflictError
        If a key was revoked, or is another client's.
    """
    keys = dict(known)
    for client_id, text in new.items():
        _check_registered(client_id, clients)
        public = check_public_key(text)
        owner, found = _find(keys, public)
        if owner not in {None, client_id}:
            raise ConflictError(f"key {fingerprint(public)} is registered for client {owner!r}")
        if found is not None and found.revoked_round is not None:
            raise ConflictError(
                f"client {client_id!r}: key {fingerprint(public)} was revoked in round "
                f"{found.revoked_round}; make a new one"
            )
        if found is None:
            keys[client_id] = (*keys.get(client_id, ()), ClientKey(public, round_num))
    return keys


def revoke_key(
    known: Keys, client_id: str, key_id: str, *, round_num: int
) -> dict[str, tuple[ClientKey, ...]]:
    """Return the keys with one of a client revoked; UnknownClientError if there is none such."""
    mine = known.get(client_id, ())
    named = [key for key in mine if key_id in {key.public, fingerprint(key.public)}]
    if not named:
        listed = ", ".join(fingerprint(key.public) for key in mine) or "none"
        raise UnknownClientError(
            f"client '{printable(client_id)}' has no key '{printable(key_id)}', it has: {listed}"
        )
    revoked = tuple(
        replace(key, revoked_round=round_num) if key in named and key.revoked_round is None else key
        for key in mine
    )
    return {**known, client_id: revoked}


def _check_registered(client_id: str, clients: Mapping[str, ClientState]) -> None:
    client = clients.get(client_id)
    if client is None or client.status is ClientStatus.FORGOTTEN:
        raise UnknownClientError(f"client '{printable(client_id)}' is not registered")


def _find(keys: Keys, public: str) -> tuple[str | None, ClientKey | None]:
    for client_id, theirs in keys.items():
        for key in theirs:
            if key.public == public:
                return client_id, key
    return None, None
