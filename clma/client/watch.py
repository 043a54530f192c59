"""Wait until there is something to do for a plant."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from clma.client.access import PlantStatus
from clma.client.pull import store_is_away
from clma.client.reach import status
from clma.errors import StorageError, UnknownFederationError
from clma.ledger.federation import Federation
from clma.records import Phase
from clma.updates.signing import SigningKey

__all__ = ["watch"]

PAUSE_S = 30.0
"""Between two looks of `watch`; a night comes once a day."""


def watch(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    *,
    after_round: int | None = None,
    model_digest: str | None = None,
    timeout_s: float = 86400.0,
    pause_s: float = PAUSE_S,
    key: SigningKey | Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> PlantStatus | None:
    """Wait until a round is open that the client has not seen, or it is given another model.

    Parameters
    ----------
    url : str, Path or Federation
        The store, the address of a gateway, or the federation where it is open already.
    federation : str
        Its name.
    client_id : str
    after_round : int, optional
        Newest round that was seen. Default: the newest one there is now.
    model_digest : str, optional
        SHA-256 of the model that the plant has. Default: that of the model it is given now.
    timeout_s : float, >= 0
        How long to wait, in seconds.
    pause_s : float, > 0
        Seconds between two looks, give or take a half, so that a fleet does not look at once.
    key : SigningKey or Path, optional
        As `clma.client.pull.pull` takes it.
    sleep, clock : callable
        How to pause, and what tells the seconds that have gone by.

    Returns
    -------
    PlantStatus or None
        Where the client stands then; None if nothing came in time.

    Raises
    ------
    UnknownFederationError, UnknownClientError
        If the store holds another federation, or the client is not registered.
    StorageError
        If the store cannot be reached at the first look or the last one; one that is away for a
        while in between only costs time.
    """
    end = clock() + timeout_s
    seen = status(url, federation, client_id, key=key)
    known_round = seen.round_num if after_round is None else after_round
    known_model = model_digest or seen.base_digest
    while True:
        if (seen.phase is Phase.OPEN and seen.round_num > known_round) or (
            seen.base_digest != known_model
        ):
            return seen
        left = end - clock()
        if left <= 0:
            return None
        sleep(min(left, pause_s * random.uniform(0.5, 1.5)))  # noqa: S311 - no secret
        try:
            seen = status(url, federation, client_id, key=key)
        except (StorageError, UnknownFederationError) as error:
            if clock() >= end or not store_is_away(url, error):
                raise
