"""Let a fleet live through its rounds and score it against the truth.

The caller says how a round is closed: in this process (`clma.night.close_round`) or by the nightly
flow. Everything else, clients included, is the same.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clma.client.model_file import read_parameters
from clma.config import FederationConfig, GivenCohorts, preset_config, requirements
from clma.errors import InvalidConfigError
from clma.ledger.federation import Federation
from clma.methods import METHODS
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import serialize_tensors
from clma.simulation.client import Participation, SimulatedClient, simulated_key
from clma.simulation.fleet import Fleet
from clma.simulation.judging import score_clients
from clma.simulation.scores import ClientScore, FleetScores, score_fleet
from clma.simulation.signatures import fleet_signatures, sent_signature_bytes
from clma.simulation.training import TrainingConfig

__all__ = ["RoundView", "closing", "found_federation", "live", "truth_schedule"]


@dataclass(frozen=True, slots=True)
class RoundView:
    """One round of a simulated life, for whoever watches.

    Parameters
    ----------
    round_num : int
    scores : tuple of ClientScore
    flagged : tuple of client id
        Clients that reported a drift.
    moves : mapping of client id to (str, str)
        Cohort before and after, of those that changed it.
    cohorts : mapping of client id to cohort id
        After the round.
    """

    round_num: int
    scores: tuple[ClientScore, ...]
    flagged: tuple[str, ...]
    moves: Mapping[str, tuple[str, str]]
    cohorts: Mapping[str, str]


def truth_schedule(fleet: Fleet, n_rounds: int) -> tuple[GivenCohorts, ...]:
    """Return the fleet's true concepts as a schedule of given cohorts, for the oracle."""
    entries: list[GivenCohorts] = []
    for round_num in range(1, n_rounds + 2):
        labels = {c: fleet.concept(c, round_num) for c in fleet.client_ids}
        if not entries or labels != entries[-1].labels:
            entries.append(GivenCohorts(from_round=round_num, labels=labels))
    return tuple(entries)


def found_federation(
    fleet: Fleet,
    url: str | Path,
    name: str,
    scratch: Path,
    *,
    preset: str = "clma",
    n_rounds: int,
    overrides: tuple[str, ...] = (),
    share: tuple[str, ...] = (),
) -> Federation:
    """Make a federation for a simulated fleet and open its first round.

    Parameters
    ----------
    fleet : Fleet
    url : str or Path
        Of the store.
    name : str
        Of the federation.
    scratch : Path
        Folder for the initial model's file; made if it is not there.
    preset : str
        ``oracle`` gets the fleet's truth as its schedule.
    n_rounds : int
        Rounds to be lived through.
    overrides : tuple of str
        ``section.key=value``.
    share : tuple of str
        What the clients share beyond the default policy and beyond what the preset's method needs.

    Raises
    ------
    InvalidConfigError
        If preset or overrides are not valid, or `n_rounds` is not positive.
    """
    if n_rounds < 1:
        raise InvalidConfigError(f"{n_rounds} rounds, wanted at least 1")
    config = _configure(fleet, name, preset, n_rounds, overrides, share)
    scratch.mkdir(parents=True, exist_ok=True)
    base = scratch / "initial.safetensors"
    base.write_bytes(serialize_tensors(fleet.initial_parameters()))
    founders = [c for c in fleet.client_ids if fleet.schedule.first_round(c) <= 1]
    public_keys = {c: simulated_key(fleet, c).public for c in founders}
    federation = Federation.create(url, config, base, founders, public_keys=public_keys)
    open_next_round(
        federation,
        now=dt.datetime.now(dt.UTC),
        signature_of=fleet_signatures(fleet, federation.config),
    )
    return federation


def closing(fleet: Fleet, federation: Federation) -> Callable[[int], None]:
    """Return what closes a round in this process and opens the next one, for `live`.

    Parameters
    ----------
    fleet : Fleet
        Its clients sign their data where the method asks for it.
    federation : Federation
    """
    signature_of = fleet_signatures(fleet, federation.config)

    def close(_round_num: int) -> None:
        close_round(federation, now=dt.datetime.now(dt.UTC), force=True, signature_of=signature_of)

    return close


def _configure(
    fleet: Fleet,
    name: str,
    preset: str,
    n_rounds: int,
    overrides: tuple[str, ...],
    share: tuple[str, ...],
) -> FederationConfig:
    needed = requirements(preset) - {"weights", "flag", "examples"}
    settings: dict[str, Any] = {
        "model_factory": fleet.model_factory,
        "model_arguments": fleet.model_arguments,
        "privacy": {"share": ["weights", "flag", "examples", *sorted(needed | set(share))]},
    }
    if preset == "oracle":
        schedule = [entry.model_dump() for entry in truth_schedule(fleet, n_rounds)]
        settings["cohorting"] = {"method": "given", "schedule": schedule}
    return preset_config(name, preset, overrides=overrides, **settings)


def live(
    fleet: Fleet,
    federation: Federation,
    scratch: Path,
    *,
    n_rounds: int,
    close: Callable[[int], None],
    watch: Callable[[RoundView], None] | None = None,
    training: TrainingConfig | None = None,
) -> FleetScores:
    """Run a fleet through its rounds.

    Parameters
    ----------
    fleet : Fleet
    federation : Federation
        With an open round; rounds before it are not lived through again, only scored.
    scratch : Path
        Folder for the clients' disks.
    n_rounds : int
        Last round to run.
    close : callable
        Closes the round of the given number and opens the next one, for example `closing`.
    watch : callable, optional
        Is shown every round as soon as it is closed.
    training : TrainingConfig, optional

    Returns
    -------
    FleetScores
        Over rounds 1 to `n_rounds`.
    """
    clients = {c: SimulatedClient(fleet, c, scratch / c, training) for c in fleet.client_ids}
    views: list[RoundView] = []
    parts: list[Participation] = []
    for round_num in range(1, n_rounds + 1):
        if round_num >= federation.state().round_num:
            parts += [
                client.take_part(federation)
                for client_id, client in clients.items()
                if fleet.schedule.first_round(client_id) <= round_num
            ]
            _register_newcomers(fleet, federation, round_num + 1)
            close(round_num)
        views.append(_view(fleet, federation, round_num, is_last=round_num == n_rounds))
        if watch is not None:
            watch(views[-1])
    scores = score_fleet(fleet, [row for v in views for row in v.scores], views[-1].cohorts)
    if len(parts) < _n_parts(fleet, n_rounds):
        return scores  # what went over the wire in rounds lived through before is not known
    return dataclasses.replace(
        scores,
        bytes_up=sum(part.bytes_up for part in parts)
        + sent_signature_bytes(fleet, federation, n_rounds),
        bytes_down=sum(part.bytes_down for part in parts),
    )


def _register_newcomers(fleet: Fleet, federation: Federation, round_num: int) -> None:
    known = federation.state().clients
    for client_id, first in fleet.schedule.joins:
        if first == round_num and client_id not in known:
            key = simulated_key(fleet, client_id)
            federation.register_client(client_id, public_key=key.public)


def _n_parts(fleet: Fleet, n_rounds: int) -> int:
    """Return how often a client takes part, over all clients."""
    return sum(
        max(0, n_rounds + 1 - fleet.schedule.first_round(client_id))
        for client_id in fleet.client_ids
    )


def _view(fleet: Fleet, federation: Federation, round_num: int, *, is_last: bool) -> RoundView:
    # As of the commit: when the next round opens, given cohorts may move on already.
    state = federation.state_at_commit(round_num)
    before = federation.state_at_seal(round_num).clients
    # Where the method lets flags lead nowhere they say nothing about it.
    follows_flags = METHODS[federation.config.cohorting.method].follows_flags
    updates = federation.sealed_round(round_num).updates if follows_flags else ()
    flags = {u.client_id: u.drift_flag for u in updates}
    models = {
        digest: read_parameters(federation.model_path(digest))
        for digest in {c.serving_digest for c in state.clients.values()}
    }
    served = {client_id: client.serving_digest for client_id, client in state.clients.items()}
    rows = score_clients(fleet, round_num, served, models, flags, with_auc_roc=is_last)
    return RoundView(
        round_num=round_num,
        scores=rows,
        flagged=tuple(row.client_id for row in rows if row.flagged),
        moves={
            c: (before[c].cohort_id, client.cohort_id)
            for c, client in state.clients.items()
            if before[c].cohort_id != client.cohort_id
        },
        cohorts={c: client.cohort_id for c, client in state.clients.items()},
    )
