"""Form the first cohorts of a fleet, or form them anew; nothing is changed by that.

A plan for a fleet that has rounds behind it keeps the names and models of its cohorts as far as the
groups are the same: each group takes the cohort that most of its members are in, one cohort at most
one group. What is left over becomes a new cohort, which starts from the model of the cohort that
most of its members come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from clma.cohorting.fmcl import Onboarding, form_cohorts
from clma.cohorting.signature_groups import taking_part
from clma.config import FederationConfig
from clma.errors import InvalidUpdateError, PolicyError
from clma.ledger.federation import Federation
from clma.ledger.signatures import Collected, collect_signatures
from clma.records import ClientStatus, CohortStatus, FederationState, Phase, cohort_number

__all__ = ["NEW", "CohortPlan", "plan_cohorts"]

NEW = "new-"
"""Begins the names of cohorts that a plan makes: a round may make others before it is in force."""


@dataclass(frozen=True, slots=True, eq=False)
class CohortPlan:
    """Cohorts that were formed, and what they were formed from.

    Parameters
    ----------
    federation : str
    round_num : int
        The earliest that can open with them.
    config : FederationConfig
        That they were formed with.
    collected : Collected
    onboarding : Onboarding
    before, after : mapping of client id to cohort id
        Of every client that was placed; new cohorts are ``new-1``, ``new-2`` ... but in the first
        round, where they have their names.
    parents : mapping of cohort id to cohort id
        Whose model a new cohort starts from.
    """

    federation: str
    round_num: int
    config: FederationConfig
    collected: Collected
    onboarding: Onboarding
    before: Mapping[str, str]
    after: Mapping[str, str]
    parents: Mapping[str, str]

    @property
    def is_first(self) -> bool:
        """No round was opened yet."""
        return self.round_num == 1

    @property
    def n_moves(self) -> int:
        """Clients that would be in another cohort than now."""
        return sum(self.before[c] != cohort for c, cohort in self.after.items())

    def members(self, cohort_id: str) -> tuple[str, ...]:
        """Return the sorted ids of the clients of a cohort."""
        return tuple(sorted(c for c, cohort in self.after.items() if cohort == cohort_id))

    @property
    def cohorts(self) -> tuple[str, ...]:
        """Cohorts with members; new ones last."""
        return tuple(sorted(set(self.after.values()), key=_in_order))


def plan_cohorts(
    federation: Federation, config: FederationConfig | None = None, *, keep: bool = False
) -> CohortPlan:
    """Form cohorts by the newest signature of each client; who is in quarantine is left out.

    Parameters
    ----------
    federation : Federation
    config : FederationConfig, optional
        With other onboarding settings than those in force.
    keep : bool
        Keep copies of the signatures, for a plan that is to be carried out; otherwise nothing is
        written.

    Raises
    ------
    PolicyError
        If the federation does not place clients by signatures.
    InvalidUpdateError
        If no usable signature has come, or they are of two encoders and neither counts.
    InvalidConfigError
        If more cohorts are wanted than there are clients.
    """
    config = config or federation.config
    if config.onboarding.method == "none":
        raise PolicyError(
            f"federation {federation.name!r} does not form cohorts from signatures: "
            "onboarding.method is 'none', wanted 'fmcl' (clma configure --set)"
        )
    state = federation.state()
    round_num = state.round_num + 1
    settled = (c for c in taking_part(state) if c.status is not ClientStatus.QUARANTINED)
    client_ids = tuple(client.client_id for client in settled)
    collected = collect_signatures(
        federation.store, state, config, client_ids, round_num=round_num, keep=keep
    )
    if not collected.found:
        raise InvalidUpdateError(_nothing_came(collected))
    onboarding = form_cohorts(state, collected.signatures, config.onboarding)
    before = {c: state.clients[c].cohort_id for c in onboarding.client_ids}
    after: Mapping[str, str] = onboarding.cohorts
    parents: Mapping[str, str] = {}
    if state.phase is not Phase.CREATED:
        after, parents = _matched(state, onboarding, before)
    return CohortPlan(
        state.federation, round_num, config, collected, onboarding, before, after, parents
    )


def _nothing_came(collected: Collected) -> str:
    text = f"no usable signature of {len(collected.missing) + len(collected.refused)} clients"
    if collected.refused:
        return f"{text}; the first of those refused: {next(iter(collected.refused.values()))}"
    return f"{text} has come: 'clma client sign' at a plant sends one"


def _matched(
    state: FederationState, onboarding: Onboarding, before: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    labels = dict(zip(onboarding.client_ids, onboarding.choice.labels, strict=True))
    groups = sorted(set(labels.values()))
    known = sorted(
        (c for c, cohort in state.cohorts.items() if cohort.status is not CohortStatus.MERGED),
        key=cohort_number,
    )
    overlap = np.array(
        [[sum(labels[i] == g and before[i] == c for i in labels) for c in known] for g in groups]
    )
    rows, columns = linear_sum_assignment(-overlap)
    names = {groups[r]: known[k] for r, k in zip(rows, columns, strict=True) if overlap[r, k] > 0}
    parents: dict[str, str] = {}
    for group in (g for g in groups if g not in names):
        names[group] = f"{NEW}{len(parents) + 1}"
        came_from = Counter(before[c] for c, g in labels.items() if g == group)
        parents[names[group]] = min(came_from, key=lambda c: (-came_from[c], cohort_number(c)))
    return {c: names[g] for c, g in labels.items()}, parents


def _in_order(cohort_id: str) -> tuple[bool, int]:
    new = cohort_id.startswith(NEW)
    return new, int(cohort_id.removeprefix(NEW)) if new else cohort_number(cohort_id)
