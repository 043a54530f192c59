"""Who votes, who is quarantined, who goes home (CLMA, Algorithm 1, lines before the mean).

A flagged client leaves its cohort's mean at once. A client that was moved by a false alarm finds
its origin's model good again one round later, says so with the confirm bit, and goes home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clma.config import FederationConfig
from clma.drift.unstable import is_resting
from clma.methods import METHODS
from clma.records import (
    ChoiceMemory,
    ClientState,
    ClientStatus,
    FederationState,
    SealedUpdate,
)
from clma.rows import SealedRound

__all__ = ["Triage", "ended_cohorts", "quarantine_clients"]


@dataclass(frozen=True, slots=True)
class Triage:
    """The accepted clients of a round, each in exactly one place.

    Parameters
    ----------
    voters : mapping of cohort id to tuple of client id
        Whose updates enter the mean of the cohort; cohorts without voters are left out.
    quarantined : tuple of client id
        Detached, to be cohorted.
    returning : mapping of client id to cohort id
        Back to the cohort they came from; an update that was trained elsewhere votes nowhere.
    notes : mapping of client id to str
        Why a client was treated otherwise than its flag asked.
    moving : mapping of client id to cohort id
        Voters that chose another cohort's model: their update votes where they go.
    merged : mapping of cohort id to cohort id
        Cohorts that end, and the one they live on in.
    scores : mapping of client id to tuple of (cohort id, score)
        What a client measured of every cohort's model, where the method asks for it.
    choices : mapping of client id to ChoiceMemory
        What the state is to remember of their comparisons, of those that stay where they are.
    outliers : tuple of client id
        Whose update points against their cohort's: they stay there and vote nowhere
        (`clma.sweep.outliers`).
    resting : tuple of client id
        Parked for moving too often: they stay in their cohort and vote nowhere
        (`clma.drift.unstable`).
    newcomers : tuple of client id
        Whose update votes nowhere and is compared with the known cohorts: their first one, and the
        last one of a rest.
    alike : mapping of cohort id to (cohort id or None, int)
        Of cohorts that were compared: the older one whose model went the same way, and for how many
        rounds (`clma.cohorting.merge`).
    """

    voters: Mapping[str, tuple[str, ...]]
    quarantined: tuple[str, ...]
    returning: Mapping[str, str]
    notes: Mapping[str, str]
    moving: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    outliers: tuple[str, ...] = ()
    choices: Mapping[str, ChoiceMemory] = field(default_factory=dict)
    resting: tuple[str, ...] = ()
    newcomers: tuple[str, ...] = ()
    alike: Mapping[str, tuple[str | None, int]] = field(default_factory=dict)


def quarantine_clients(
    state: FederationState, sealed: SealedRound, config: FederationConfig
) -> Triage:
    """Sort the accepted clients by their flags.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    config : FederationConfig

    Returns
    -------
    Triage
        Equal for any order of the sealed updates.

    Notes
    -----
    A client's first update cannot have drifted against a loss it never measured: the flag is noted
    and not followed. A client still in quarantine from an earlier round stays there whatever it
    flags, until a cohort is found for it. A first update is on probation only where its cohort has
    voters that are not new.
    """
    voters: dict[str, list[str]] = {}
    quarantined: list[str] = []
    returning: dict[str, str] = {}
    notes: dict[str, str] = {}
    resting: list[str] = []
    newcomers: list[str] = []
    settled = _settled_cohorts(state, sealed) if config.drift.probation else frozenset()
    follow_flags = METHODS[config.cohorting.method].follows_flags
    for update in sorted(sealed.updates, key=lambda u: u.client_id):
        client = state.clients[update.client_id]
        home = _way_home(client, update, state, config)
        if is_resting(client, state.round_num) and state.round_num == client.rests_until:
            newcomers.append(client.client_id)
            notes[client.client_id] = "unstable: the last night of its rest, votes nowhere"
        elif is_resting(client, state.round_num):
            resting.append(client.client_id)
            notes[client.client_id] = (
                f"unstable: votes nowhere and its flag is not followed until round "
                f"{client.rests_until}"
            )
        elif home is not None:
            returning[client.client_id] = home
            notes[client.client_id] = f"went home to {home}: its model is not bad there any more"
        elif follow_flags and client.status is ClientStatus.QUARANTINED:
            quarantined.append(client.client_id)
            notes[client.client_id] = "still in quarantine"
        elif follow_flags and update.drift_flag and client.n_updates > 0:
            quarantined.append(client.client_id)
        elif follow_flags and client.n_updates == 0 and client.cohort_id in settled:
            newcomers.append(client.client_id)
            notes[client.client_id] = "on probation: a first update votes nowhere"
        else:
            voters.setdefault(client.cohort_id, []).append(client.client_id)
            if update.drift_flag and follow_flags:
                notes[client.client_id] = "flag not followed: no earlier loss to compare with"
            elif update.drift_flag:
                notes[client.client_id] = (
                    f"flag not followed: method {config.cohorting.method!r} ignores flags"
                )
    return Triage(
        voters={cohort: tuple(ids) for cohort, ids in sorted(voters.items())},
        quarantined=tuple(quarantined),
        returning=returning,
        notes=notes,
        merged=ended_cohorts(state, returning, (), quarantined) if config.cohorting.merge else {},
        resting=tuple(resting),
        newcomers=tuple(newcomers),
    )


def ended_cohorts(
    state: FederationState,
    returning: Mapping[str, str],
    chosen: Iterable[str],
    quarantined: Iterable[str],
) -> dict[str, str]:
    """Return the cohorts of last night's false alarms, and where their members came from.

    Parameters
    ----------
    state : FederationState
        Before the round.
    returning : mapping of client id to cohort id
        Clients that go home.
    chosen : iterable of cohort id
        Cohorts that clients came to by choice.
    quarantined : iterable of client id

    Notes
    -----
    Nobody has to find their models good again: they are those of one night and a few clients. Left
    alone they would be taken for a known concept, of which their home is the better model.
    """
    founded = [c for c in state.active_cohorts() if c.born_round == state.round_num - 1]
    homes = {c.cohort_id: {returning.get(m) for m in state.members(c.cohort_id)} for c in founded}
    wanted = {*chosen, *(state.clients[q].cohort_id for q in quarantined)}
    return {
        cohort_id: home
        for cohort_id, of_members in homes.items()
        if len(of_members) == 1
        and (home := next(iter(of_members))) is not None
        and cohort_id not in wanted
    }


def _settled_cohorts(state: FederationState, sealed: SealedRound) -> frozenset[str]:
    """Return the cohorts of which a client takes part that took part before."""
    clients = (state.clients[update.client_id] for update in sealed.updates)
    return frozenset(client.cohort_id for client in clients if client.n_updates > 0)


def _way_home(
    client: ClientState, update: SealedUpdate, state: FederationState, config: FederationConfig
) -> str | None:
    home = client.way_home()
    asked = config.drift.confirm and home in state.cohorts
    if home is None or not asked or update.confirm is not False:
        return None
    home = state.lives_on_in(home)
    here = client.status is not ClientStatus.QUARANTINED and home == client.cohort_id
    return None if here else home
