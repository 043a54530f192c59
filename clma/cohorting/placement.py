"""Turn groups into cohorts: recalled, created or held, with names that do not depend on order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clma.aggregation import too_few_voters
from clma.cohorting.contract import Group, Grouping
from clma.config import AggregationConfig, FederationConfig
from clma.drift.quarantine import Triage
from clma.records import ClientStatus, FederationState, SealedUpdate, cohort_number
from clma.rows import CohortingRow, SealedRound

__all__ = ["AggregationJob", "Placement", "place_groups", "voting_jobs"]


@dataclass(frozen=True, slots=True)
class AggregationJob:
    """One cohort's model to make.

    Parameters
    ----------
    cohort_id : str
    voters : tuple of SealedUpdate
        Sorted by client id, at least one.
    parent : str or None
        Origin cohort of a new one; None for a cohort that exists.
    reference_digest : str or None
        Of a new cohort: the model its members had been sent.
    """

    cohort_id: str
    voters: tuple[SealedUpdate, ...]
    parent: str | None = None
    reference_digest: str | None = None

    @property
    def n_examples(self) -> int:
        """Examples behind all voters."""
        return sum(u.n_examples for u in self.voters)

    def n_weighed(self, config: AggregationConfig) -> int:
        """Return how many voters have a weight above 0."""
        return sum(config.weight == "equal" or u.n_examples > 0 for u in self.voters)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everybody goes, and which models are to be made.

    Parameters
    ----------
    moves : mapping of client id to cohort id
        Clients whose cohort changes.
    held : tuple of client id
        Quarantined without a cohort; they keep the last good model.
    jobs : tuple of AggregationJob
        By number of the cohort.
    too_few : mapping of cohort id to str
        Cohorts that voted and still keep their model, and why.
    rows : tuple of CohortingRow
        Final evidence, sorted by client id.
    merged : mapping of cohort id to cohort id
        Cohorts that end, and the one they live on in.
    mean_norms : mapping of cohort id to float
        Length of the mean update of cohorts whose members were compared as a whole.
    notes : mapping of client id to str
        Why a client was placed otherwise than its movement asked.
    """

    moves: Mapping[str, str]
    held: tuple[str, ...]
    jobs: tuple[AggregationJob, ...]
    too_few: Mapping[str, str]
    rows: tuple[CohortingRow, ...]
    merged: Mapping[str, str] = field(default_factory=dict)
    mean_norms: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def voting_jobs(
    triage: Triage, updates: Mapping[str, SealedUpdate], config: FederationConfig
) -> tuple[tuple[AggregationJob, ...], dict[str, str]]:
    """Return the models that known cohorts' voters make, and why other cohorts keep theirs.

    Parameters
    ----------
    triage : Triage
    updates : mapping of client id to SealedUpdate
    config : FederationConfig
    """
    jobs: list[AggregationJob] = []
    too_few: dict[str, str] = {}
    for cohort_id, voters in triage.voters.items():
        job = AggregationJob(cohort_id, tuple(updates[v] for v in voters))
        reason = _why_not(job, config)
        if reason is None:
            jobs.append(job)
        else:
            too_few[cohort_id] = reason
    return tuple(jobs), too_few


def place_groups(
    state: FederationState,
    sealed: SealedRound,
    triage: Triage,
    groupings: Sequence[Grouping],
    config: FederationConfig,
) -> Placement:
    """Decide the cohorts of a round.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    triage : Triage
    groupings : sequence of Grouping
        One a unit, in any order.
    config : FederationConfig

    Notes
    -----
    Names of new cohorts follow the smallest member of each group, over all units. A group without a
    single example, smaller than the cohort quorum, or with fewer voters than the aggregation rule
    needs, is held in quarantine: it gets no model, and loses none. So is a client that was unlike
    too many others at once, for one night: flags without a shift look like that. If it is still in
    quarantine the night after, it founds a cohort. So is a group that would need one live cohort
    more than `max_live_cohorts`, for as long as that is so; going home is never refused. A recalled
    group's updates are not averaged into the cohort it joins: they were trained from another start.

    Where flags are raised again for want of relief (`drift.recheck`), all members of a cohort that
    was founded a round ago, of one mind again, found no second one: a model of one round is nothing
    to remember, it only had not learnt enough.
    """
    settled = _of_one_mind(state, groupings) if config.drift.recheck else frozenset()
    groupings = [_staying(grouping, settled) for grouping in groupings]
    updates = {u.client_id: u for u in sealed.updates}
    voting, too_few = voting_jobs(triage, updates, config)
    jobs = list(voting)
    moves = {**triage.returning, **triage.moving, **_moves_of_merged(state, triage, updates)}
    held: list[str] = []
    notes: dict[str, str] = {}
    live = _kept_live(state, moves, groupings)
    most = config.cohorting.max_live_cohorts or math.inf
    n_known = 1 + max(cohort_number(c) for c in state.cohorts)
    for grouping, group in _ordered(groupings):
        recalled = group.recall_cohort and triage.merged.get(
            group.recall_cohort, group.recall_cohort
        )
        target = recalled or f"c{n_known}"
        if not group.stays and target not in live and len(live) >= most:
            held.extend(group.members)
            notes |= dict.fromkeys(
                group.members,
                f"held: {len(live)} cohorts live, cohorting.max_live_cohorts is {most}",
            )
            continue
        if recalled:
            live.add(target)
            moves.update(dict.fromkeys(group.members, target))
            continue
        if group.stays:
            origin = state.clients[min(group.members)].cohort_id
            job = AggregationJob(origin, tuple(updates[m] for m in sorted(group.members)))
            reason = _why_not(job, config)
            if reason is None:
                jobs.append(job)
            else:
                too_few[origin] = reason
            continue
        job = AggregationJob(
            cohort_id=target,
            voters=tuple(updates[m] for m in sorted(group.members)),
            parent=state.clients[min(group.members)].cohort_id,
            reference_digest=grouping.reference.sha256,
        )
        if _why_not(job, config) is not None or _to_be_seen_again(group, state):
            held.extend(group.members)
            continue
        jobs.append(job)
        live.add(job.cohort_id)
        moves.update(dict.fromkeys(group.members, job.cohort_id))
        n_known += 1
    return Placement(
        moves=dict(sorted(moves.items())),
        held=tuple(sorted(held)),
        jobs=tuple(sorted(jobs, key=lambda j: cohort_number(j.cohort_id))),
        too_few=too_few,
        rows=_final_rows(groupings, held),
        merged=triage.merged,
        mean_norms={
            state.clients[group.members[0]].cohort_id: grouping.mean_norm
            for grouping, group in _ordered(groupings)
            if group.stays and not settled.issuperset(group.members)
        },
        notes=notes,
    )


def _of_one_mind(state: FederationState, groupings: Sequence[Grouping]) -> frozenset[str]:
    """Return the clients of groups that are all there is of a cohort founded a round ago."""
    young = {
        cohort_id: state.members(cohort_id)
        for cohort_id, cohort in state.cohorts.items()
        if cohort.parent is not None and cohort.born_round == state.round_num - 1
    }
    return frozenset(
        member
        for _, group in _ordered(groupings)
        if group.recall_cohort is None and group.members in young.values()
        for member in group.members
    )


def _staying(grouping: Grouping, settled: frozenset[str]) -> Grouping:
    if settled.isdisjoint(m for group in grouping.groups for m in group.members):
        return grouping
    return dataclasses.replace(
        grouping,
        groups=tuple(
            dataclasses.replace(g, stays=g.stays or settled.issuperset(g.members))
            for g in grouping.groups
        ),
        rows=tuple(
            dataclasses.replace(r, decision="kept") if r.client_id in settled else r
            for r in grouping.rows
        ),
    )


def _kept_live(
    state: FederationState, moves: Mapping[str, str], groupings: Sequence[Grouping]
) -> set[str]:
    """Return the cohorts with a member whatever becomes of the groups."""
    out = {ClientStatus.FORGOTTEN, ClientStatus.QUARANTINED}
    open_ = {m for _, group in _ordered(groupings) for m in group.members if not group.stays}
    return {
        moves.get(client_id, client.cohort_id)
        for client_id, client in state.clients.items()
        if client_id in moves or (client_id not in open_ and client.status not in out)
    }


def _moves_of_merged(
    state: FederationState, triage: Triage, accepted: Mapping[str, SealedUpdate]
) -> dict[str, str]:
    """Return where clients of merged cohorts go that did not answer."""
    return {
        client_id: triage.merged[client.cohort_id]
        for client_id, client in state.clients.items()
        if client.cohort_id in triage.merged and client_id not in accepted
    }


def _ordered(groupings: Sequence[Grouping]) -> list[tuple[Grouping, Group]]:
    pairs = [(grouping, group) for grouping in groupings for group in grouping.groups]
    return sorted(pairs, key=lambda pair: min(pair[1].members))


def _to_be_seen_again(group: Group, state: FederationState) -> bool:
    waited = all(state.clients[m].status is ClientStatus.QUARANTINED for m in group.members)
    return group.unclear and not waited


def _why_not(job: AggregationJob, config: FederationConfig) -> str | None:
    if len(job.voters) < config.round.cohort_quorum:
        return f"{len(job.voters)} updates, round.cohort_quorum is {config.round.cohort_quorum}"
    if config.aggregation.weight == "examples" and job.n_examples == 0:
        return f"NO_WEIGHT: {len(job.voters)} updates with 0 examples together"
    return too_few_voters(job.n_weighed(config.aggregation), config.aggregation)


def _final_rows(groupings: Sequence[Grouping], held: Sequence[str]) -> tuple[CohortingRow, ...]:
    rows = [row for grouping in groupings for row in grouping.rows]
    out = set(held)
    return tuple(
        sorted(
            (dataclasses.replace(r, decision="held") if r.client_id in out else r for r in rows),
            key=lambda row: row.client_id,
        )
    )
