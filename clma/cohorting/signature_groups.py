"""What methods that place clients by signatures share: who is new, who is alike, who goes where.

Such a method moves clients when a round opens, before they train. The root cohort is nobody's: it
keeps the initial model, and clients wait there until they are placed. The state remembers of every
placed client of which round its signature is, and whoever asks for that signature again gets the
same one, so nothing but a round number has to be kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from clma.cohorting.clustering import TIE, average_linkage, in_order
from clma.cohorting.given import move_clients
from clma.config import CohortingConfig
from clma.records import ClientState, ClientStatus, FederationState, cohort_number

__all__ = ["found_cohorts", "group_alike", "newcomers", "placed_rounds", "settle", "taking_part"]

_AWAY = frozenset({ClientStatus.PAUSED, ClientStatus.FORGOTTEN, ClientStatus.UNSTABLE})


def newcomers(state: FederationState, round_num: int) -> tuple[str, ...]:
    """Return the sorted ids of clients that take part in a round and were never placed."""
    return tuple(
        client.client_id
        for client in taking_part(state)
        if client.signature_round is None and client.joined_round <= round_num
    )


def placed_rounds(state: FederationState) -> dict[str, int]:
    """Return of which round the signature is that a client was placed by, by sorted id."""
    return {
        client.client_id: client.signature_round
        for client in taking_part(state)
        if client.signature_round is not None
    }


def group_alike(
    distances: NDArray[np.float64], config: CohortingConfig, *, largest: float
) -> tuple[int, ...]:
    """Group by average linkage (UPGMA).

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        At least 0, symmetric, zero diagonal. Not modified.
    config : CohortingConfig
        Silhouette floors and the most groups, where `largest` is 0.
    largest : float >= 0
        Groups of at most this mean distance become one. 0: the number of groups with the largest
        silhouette. A distance alone says nothing without a scale, so where no split stands out, and
        of two clients always, everybody is one group.

    Returns
    -------
    tuple of int
        Label of every client; labels are numbered by their first client.
    """
    if len(distances) < 2:
        return (0,) * len(distances)
    if largest > 0:
        tree = linkage(squareform(distances, checks=False), "average")
        return in_order(np.asarray(fcluster(tree, largest + TIE, criterion="distance")))
    return average_linkage(
        distances,
        max_groups=config.max_groups,
        silhouette_floor=config.silhouette_floor,
        silhouette_floor_three=config.silhouette_floor_three,
        pair_threshold=-math.inf,
    ).labels


def found_cohorts(
    state: FederationState, client_ids: Sequence[str], labels: Sequence[int]
) -> dict[str, str]:
    """Return the names of new cohorts for the labels, by client id."""
    n_known = 1 + max(cohort_number(c) for c in state.cohorts)
    return {c: f"c{n_known + label}" for c, label in zip(client_ids, labels, strict=True)}


def settle(
    state: FederationState,
    targets: Mapping[str, str],
    round_num: int,
    *,
    start_from: str | None = None,
) -> FederationState:
    """Return the state with clients in their cohorts, placed by their data of this round.

    Parameters
    ----------
    state : FederationState
        Not modified.
    targets : mapping of client id to cohort id
    round_num : int >= 1
        The round about to open.
    start_from : str, optional
        Cohort whose model a new one starts from; default: the one that its smallest member comes
        from.
    """
    moved = move_clients(state, targets, round_num, start_from=start_from)
    placed = {
        client_id: dataclasses.replace(
            moved.clients[client_id], signature_round=round_num, placed_cohort=cohort_id
        )
        for client_id, cohort_id in targets.items()
    }
    return dataclasses.replace(moved, clients=dict(sorted({**moved.clients, **placed}.items())))


def taking_part(state: FederationState) -> Iterable[ClientState]:
    """Return the clients that are neither away nor unstable, by sorted id."""
    return (c for _, c in sorted(state.clients.items()) if c.status not in _AWAY)
