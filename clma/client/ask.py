"""Ask for a round before its time: the deployed model became bad.

What `InferenceDriftMonitor` leads to. A request tells that the plant drifted and by which measure,
nothing more; send the update first, for the round waits for it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from clma.client.access import given_key
from clma.client.pull import PulledModel
from clma.client.reach import reach
from clma.ledger.federation import Federation
from clma.updates.round_request import RoundRequest, parse_request, request_bytes, sign_request
from clma.updates.signing import SigningKey

__all__ = ["RequestReceipt", "request_round"]


@dataclass(frozen=True, slots=True)
class RequestReceipt:
    """What was asked.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
        The round that is to be closed.
    duplicate : bool
        The plant had asked for it before; nothing was written.
    """

    federation: str
    client_id: str
    round_num: int
    duplicate: bool = False


def request_round(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    *,
    measure: str = "loss",
    pulled: PulledModel | None = None,
    key: SigningKey | Path | None = None,
    now: dt.datetime | None = None,
) -> RequestReceipt:
    """Ask for the open round to be closed early.

    Parameters
    ----------
    url : str, Path or Federation
        The store, the address of a gateway, or the federation where it is open already.
    federation : str
        Its name.
    client_id : str
    measure : str
        Of the monitor: ``loss``, or the name of a label-free surrogate.
    pulled : PulledModel, optional
        The model that is deployed. Default: the one that the client is served now.
    key : SigningKey or Path, optional
        As for `submit`.
    now : datetime, optional
        With a zone; only written down.

    Returns
    -------
    RequestReceipt
        Asking again for the same round changes nothing.

    Raises
    ------
    InvalidUpdateError
        With its reason: of another round, of a model that is not served any more, not signed.
    PolicyError
        If the policy does not share the flag.
    RoundStateError
        If the federation takes no requests, or no round is open.
    UnknownClientError, UnknownFederationError
        If the names are not known.
    """
    key = given_key(key)
    access = reach(url, federation, client_id, key=key)
    offer = access.offer()
    request = RoundRequest(
        federation=offer.federation,
        client_id=client_id,
        round_num=max(1, offer.round_num),
        base_digest=offer.base_digest if pulled is None else pulled.base_digest,
        measure=measure,
        created_at=(now or dt.datetime.now(dt.UTC)).isoformat(),
    )
    if key is not None:
        request = sign_request(request, key)
    duplicate = access.request(parse_request(request_bytes(request)))
    return RequestReceipt(offer.federation, client_id, request.round_num, duplicate)
