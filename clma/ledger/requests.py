"""Requests for a round before its time: taken in, read, tidied away.

They are no part of the ledger: they only say when somebody wanted the round closed. A client has
one of each round, however often it asks.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from clma.config import FederationConfig
from clma.errors import (
    DamagedStoreError,
    InvalidUpdateError,
    PolicyError,
    RoundStateError,
    StorageError,
)
from clma.ledger.keys import printable, request_key, requests_prefix
from clma.ledger.refusals import SENDERS_FAULTS
from clma.ledger.store import Store
from clma.records import ClientState, ClientStatus, FederationState, Phase
from clma.updates.reasons import Reason
from clma.updates.round_request import (
    MAX_REQUEST_BYTES,
    RoundRequest,
    check_request_signature,
    parse_request,
    request_bytes,
)

__all__ = [
    "OpenRequest",
    "check_request",
    "deliver_request",
    "open_requests",
    "tidy_requests",
]

_MAX_LOOKED_AT = 16
"""Files per client: it writes one, the others are a stranger's."""

_DEAF_TO = frozenset({ClientStatus.PAUSED, ClientStatus.FORGOTTEN})


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that is to be followed.

    Parameters
    ----------
    request : RoundRequest
    received_at : datetime
        In UTC, by the store's clock.
    """

    request: RoundRequest
    received_at: dt.datetime


def check_request(request: RoundRequest, state: FederationState, config: FederationConfig) -> None:
    """Refuse a request that is not to be followed.

    Raises
    ------
    InvalidUpdateError
        With its reason: not the client's own, of another round, of a model that is not served.
    PolicyError
        If the policy does not let the flag leave the plant; a request tells as much.
    RoundStateError
        If the federation takes no requests, or its round is not open.
    """
    client = state.clients.get(request.client_id)
    whose = f"client '{printable(request.client_id)}'"
    if client is None or client.status in _DEAF_TO:
        raise InvalidUpdateError(f"{whose} takes no part", Reason.UNKNOWN_CLIENT)
    if config.identity.updates == "signed":
        check_request_signature(request, state.keys.get(request.client_id, ()))
    if request.federation != state.federation:
        raise InvalidUpdateError(
            f"{whose}: federation '{printable(request.federation)}', wanted '{state.federation}'",
            Reason.BAD_METADATA,
        )
    if not config.round.extra_requests:
        raise RoundStateError(
            f"federation {state.federation!r} closes no round early: round.extra_requests is 0"
        )
    if "flag" not in config.privacy.share:
        raise PolicyError(f"{whose}: a request tells that it drifted, privacy.share lacks 'flag'")
    _check_round(request, state, client)


def _check_round(request: RoundRequest, state: FederationState, client: ClientState) -> None:
    whose = f"client '{client.client_id}'"
    if state.phase is not Phase.OPEN:
        raise RoundStateError(f"round {state.round_num} is {state.phase.value}, wanted open")
    if request.round_num != state.round_num:
        early = request.round_num > state.round_num
        raise InvalidUpdateError(
            f"{whose}: asks for round {request.round_num}, open is {state.round_num}",
            Reason.FUTURE_ROUND if early else Reason.STALE_ROUND,
        )
    if request.base_digest != client.serving_digest:
        raise InvalidUpdateError(
            f"{whose}: model {request.base_digest[:12]} is bad, {client.serving_digest[:12]} is "
            "served now; pull and deploy that first",
            Reason.STALE_BASE,
        )


def deliver_request(
    store: Store, request: RoundRequest, state: FederationState, config: FederationConfig
) -> bool:
    """Write a request; True: the client had asked for this round before, nothing was written.

    Raises
    ------
    InvalidUpdateError, PolicyError, RoundStateError
        As `check_request`.
    """
    check_request(request, state, config)
    if _find(store, request.client_id, state, config) is not None:
        return True
    data = request_bytes(request)
    digest = hashlib.sha256(data).hexdigest()
    store.put_once(request_key(request.round_num, request.client_id, digest), data)
    return False


def open_requests(
    store: Store, state: FederationState, config: FederationConfig
) -> tuple[OpenRequest, ...]:
    """Return what clients ask for the open round, one each, sorted by client.

    What is no request, or nobody's, is passed over: whoever can write here can write anything.
    """
    found = {key.split("/")[2] for key in store.list(requests_prefix(state.round_num))}
    known = sorted(found & state.clients.keys())
    asked = (_find(store, client_id, state, config) for client_id in known)
    return tuple(request for request in asked if request is not None)


def tidy_requests(store: Store, round_num: int) -> None:
    """Delete the requests of a round that is closed."""
    for key in store.list(requests_prefix(round_num)):
        store.delete(key)


def _find(
    store: Store, client_id: str, state: FederationState, config: FederationConfig
) -> OpenRequest | None:
    keys = store.list(f"{requests_prefix(state.round_num)}/{client_id}")
    for found in _readable(store, keys[:_MAX_LOOKED_AT]):
        try:
            check_request(found.request, state, config)
        except (InvalidUpdateError, PolicyError, RoundStateError):
            continue
        if found.request.client_id == client_id:
            return found
    return None


def _readable(store: Store, keys: tuple[str, ...]) -> Iterator[OpenRequest]:
    for key in keys:
        try:
            info, data = store.look(key, max_bytes=MAX_REQUEST_BYTES + 1)
            yield OpenRequest(parse_request(data), info.modified)
        except (InvalidUpdateError, DamagedStoreError, ValueError):
            continue
        except StorageError as error:
            if error.errno not in SENDERS_FAULTS:
                raise
