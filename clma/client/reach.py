"""Find the way to a federation by its address: a store, or a gateway in front of one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from clma.client.access import Access, PlantStatus, given_key
from clma.client.direct import DirectAccess, open_federation
from clma.ledger.federation import Federation
from clma.updates.signing import SigningKey

__all__ = ["is_gateway", "reach", "status"]


def is_gateway(url: str | Path | Federation) -> bool:
    """Tell whether an address is that of a gateway.

    Every ``http://`` or ``https://`` address is, but for those at which an object store is known to
    live (``https://BUCKET.s3.amazonaws.com`` and the like).
    """
    if not isinstance(url, str) or urlsplit(url).scheme not in {"http", "https"}:
        return False
    from obstore.exceptions import BaseError
    from obstore.store import HTTPStore, from_url

    try:
        return isinstance(from_url(url), HTTPStore)
    except (BaseError, ValueError):
        return True


def reach(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    *,
    key: SigningKey | Path | None = None,
) -> Access:
    """Return a client's way to its federation.

    Parameters
    ----------
    url : str, Path or Federation
        The store, the gateway, or the federation where it is open already.
    federation : str
        Its name.
    client_id : str
    key : SigningKey or Path, optional
        Signs the requests to a gateway; default: the file that ``CLMA_CLIENT_KEY`` names.

    Raises
    ------
    InvalidConfigError
        If the address is a gateway's and there is no key.
    UnknownFederationError
        If the store holds another federation.
    """
    if isinstance(url, str) and is_gateway(url):
        from clma.client.gateway import GatewayAccess

        return GatewayAccess(url, federation, client_id, given_key(key))
    return DirectAccess(open_federation(url, federation), client_id)


def status(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    *,
    key: SigningKey | Path | None = None,
) -> PlantStatus:
    """Return where a client stands: its round, whether its update lies there, the last verdict.

    Parameters and errors are those of `reach`.

    Raises
    ------
    UnknownClientError
        If the client is not registered.
    """
    return reach(url, federation, client_id, key=key).status()
