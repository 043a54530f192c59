"""Known cohorts: the operator's schedule says who belongs together from which round on.

The yardstick of every comparison (`oracle`: the schedule is the simulation's truth), and the way to
run a fleet whose cohorts are known. The moves are made when a round opens, so clients train on
their cohort's model from its first round on; a new cohort starts from the model of the cohort that
its smallest member comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from clma.config import FederationConfig
from clma.errors import InvalidConfigError
from clma.records import ROOT_COHORT, ClientStatus, Cohort, FederationState, cohort_number

__all__ = ["given_moves", "move_clients", "moves_apart"]


def given_moves(
    state: FederationState, config: FederationConfig, round_num: int
) -> FederationState:
    """Return the state with every client in the cohort that the schedule gives for a round.

    Parameters
    ----------
    state : FederationState
        After the last commit. Not modified.
    config : FederationConfig
        With ``cohorting.method = "given"``; with any other method the state comes back as it is.
    round_num : int >= 1
        The round about to open.

    Raises
    ------
    InvalidConfigError
        If the schedule leaves out a registered client.

    Notes
    -----
    Labels become cohorts in the order in which the schedule first names them (by name within one
    entry): the first is the root ``c0``.
    """
    entries = [e for e in config.cohorting.schedule if e.from_round <= round_num]
    if config.cohorting.method != "given" or not entries:
        return state
    for client_id, client in sorted(state.clients.items()):
        if client.status is not ClientStatus.FORGOTTEN and client_id not in entries[-1].labels:
            raise InvalidConfigError(
                f"client {client_id!r}: cohorting.schedule has no label from round "
                f"{entries[-1].from_round} on"
            )
    names = _cohort_names(config)
    targets = {client_id: names[label] for client_id, label in entries[-1].labels.items()}
    return move_clients(state, targets, round_num)


def moves_apart(state: FederationState, round_num: int) -> FederationState:
    """Return the state with every client in a cohort of its own: nobody learns from anybody.

    Parameters
    ----------
    state : FederationState
        After the last commit. Not modified.
    round_num : int >= 1
        The round about to open. Who was registered since the last one leaves the root cohort now.

    Notes
    -----
    The root cohort is nobody's: it keeps the initial model for clients to come.
    """
    n_known = 1 + max(cohort_number(c) for c in state.cohorts)
    newcomers = [i for i, c in sorted(state.clients.items()) if c.cohort_id == ROOT_COHORT]
    targets = {client_id: f"c{n_known + k}" for k, client_id in enumerate(newcomers)}
    return move_clients(state, targets, round_num)


def move_clients(
    state: FederationState,
    targets: Mapping[str, str],
    round_num: int,
    *,
    start_from: str | None = None,
) -> FederationState:
    """Return the state with clients in the cohorts they are given, forgotten ones left alone.

    Parameters
    ----------
    state : FederationState
        Not modified.
    targets : mapping of client id to cohort id
        Of those who may move.
    round_num : int >= 1
        The round about to open.
    start_from : str, optional
        Cohort whose model a new one starts from; default: the one that its smallest member comes
        from.
    """
    cohorts = dict(state.cohorts)
    clients = dict(state.clients)
    for client_id, client in sorted(clients.items()):
        if client.status is ClientStatus.FORGOTTEN or client_id not in targets:
            continue
        target = targets[client_id]
        parent = cohorts[start_from or client.cohort_id]
        if target not in cohorts:
            cohorts[target] = Cohort(
                cohort_id=target,
                parent=parent.cohort_id,
                born_round=round_num,
                model_digest=parent.model_digest,
                origin_digest=parent.model_digest,
            )
        if target != client.cohort_id:
            clients[client_id] = dataclasses.replace(
                client,
                cohort_id=target,
                serving_digest=cohorts[target].model_digest,
                serving_since=round_num,
                moved_round=round_num,
                origin_cohort=client.cohort_id,
            )
    return dataclasses.replace(state, clients=clients, cohorts=cohorts).rested()


def _cohort_names(config: FederationConfig) -> dict[str, str]:
    names: dict[str, str] = {}
    for entry in config.cohorting.schedule:
        for label in sorted(set(entry.labels.values())):
            names.setdefault(label, f"c{len(names)}")
    return names
