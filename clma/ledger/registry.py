"""Who takes part: registering clients under ids that stay unique on every file system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clma.errors import ConflictError
from clma.ledger.keys import check_client_id
from clma.records import ROOT_COHORT, ClientState, ClientStatus

__all__ = ["register_clients"]


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
