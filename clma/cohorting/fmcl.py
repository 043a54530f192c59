"""FMCL: clients whose data look alike to a frozen encoder start in one cohort.

Before its first round every client sends the mean embedding and the share of each of its classes.
The clients are grouped once, the number of groups is found, and from there on each cohort trains
for itself. What a client's data do later is no part of it: that is for the drift detector and the
cohorting method, which go on with these cohorts.

References
----------
.. [1] FMCL, "one-shot, class-aware client clustering with foundation models".

Notes
-----
The largest group stays in the root cohort, so that a client whose signature has not come starts
with the model of the many. A newcomer goes to the cohort with the smallest mean distance to it;
members are measured by the data that they were placed by, and whoever is elsewhere by now is no
witness.

`clma.cohorting.class_distances` measures, `clma.cohorting.automatic_k` counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clma.cohorting.automatic_k import GroupChoice, choose_groups
from clma.cohorting.class_distances import ClassDistances, class_distances
from clma.cohorting.signature_groups import newcomers, placed_rounds, settle
from clma.config import FederationConfig, OnboardingConfig
from clma.records import ROOT_COHORT, FederationState, cohort_number
from clma.signatures.signature import Signature, SignatureSource

__all__ = ["Onboarding", "Placement", "form_cohorts", "place_by_class_means", "place_newcomers"]


@dataclass(frozen=True, slots=True)
class Onboarding:
    """The first cohorts of a fleet, and what they were found from.

    Parameters
    ----------
    client_ids : tuple of str
        Sorted; rows of the distances.
    found : ClassDistances
    choice : GroupChoice
    cohorts : mapping of client id to cohort id
    """

    client_ids: tuple[str, ...]
    found: ClassDistances
    choice: GroupChoice
    cohorts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a newcomer goes.

    Parameters
    ----------
    cohort_id : str
    distances : mapping of cohort id to float
        Mean distance to each cohort's members; the cohort's is the smallest.
    """

    cohort_id: str
    distances: Mapping[str, float]


def place_by_class_means(
    state: FederationState,
    config: FederationConfig,
    round_num: int,
    signature_of: SignatureSource,
) -> FederationState:
    """Return the state with every newcomer in a cohort; nobody else moves.

    Parameters
    ----------
    state : FederationState
        Not modified.
    config : FederationConfig
    round_num : int >= 1
        The round about to open.
    signature_of : callable

    Raises
    ------
    InvalidUpdateError, ShapeMismatchError
        If signatures do not compare; names the client.
    """
    new = newcomers(state, round_num)
    if not new:
        return state
    fresh = {client_id: signature_of(client_id, round_num) for client_id in new}
    known = {client_id: signature_of(client_id, r) for client_id, r in placed_rounds(state).items()}
    if not known:
        return settle(state, form_cohorts(state, fresh, config.onboarding).cohorts, round_num)
    placements = place_newcomers(state, known, fresh, config.onboarding)
    return settle(state, {c: p.cohort_id for c, p in placements.items()}, round_num)


def form_cohorts(
    state: FederationState, signatures: Mapping[str, Signature], config: OnboardingConfig
) -> Onboarding:
    """Group clients that were never placed.

    Parameters
    ----------
    state : FederationState
        Not modified; names new cohorts.
    signatures : mapping of client id to Signature
        In any order.
    config : OnboardingConfig

    Raises
    ------
    InvalidUpdateError, ShapeMismatchError
        If signatures do not compare; names the client.
    InvalidConfigError
        If more groups are wanted than there are clients.
    """
    client_ids = tuple(sorted(signatures))
    found = _distances({c: signatures[c] for c in client_ids}, config)
    choice = choose_groups(
        found.distances,
        method=config.linkage,
        n_groups=config.n_groups,
        silhouette_floor=config.silhouette_floor,
        alike_within=config.alike_within,
    )
    names = _names(state, choice.labels)
    cohorts = {c: names[label] for c, label in zip(client_ids, choice.labels, strict=True)}
    return Onboarding(client_ids, found, choice, cohorts)


def place_newcomers(
    state: FederationState,
    known: Mapping[str, Signature],
    fresh: Mapping[str, Signature],
    config: OnboardingConfig,
) -> dict[str, Placement]:
    """Say which cohort is nearest to each newcomer, whatever the others are.

    Parameters
    ----------
    state : FederationState
        Not modified.
    known : mapping of client id to Signature
        Of clients that were placed.
    fresh : mapping of client id to Signature
        Of newcomers.
    config : OnboardingConfig

    Returns
    -------
    dict of client id to Placement
        By sorted id. The root cohort where nobody is left who could be compared with.

    Raises
    ------
    InvalidUpdateError, ShapeMismatchError
        If signatures do not compare; names the client.
    """
    witnesses = tuple(c for c in sorted(known) if _is_witness(state, c))
    cohorts = {c: state.clients[c].cohort_id for c in witnesses}
    return {
        client_id: _place(client_id, {c: known[c] for c in witnesses}, cohorts, fresh, config)
        for client_id in sorted(fresh)
    }


def _place(
    client_id: str,
    witnesses: Mapping[str, Signature],
    cohorts: Mapping[str, str],
    fresh: Mapping[str, Signature],
    config: OnboardingConfig,
) -> Placement:
    # One newcomer at a time, so that it goes to the same place whoever comes with it.
    found = _distances({**witnesses, client_id: fresh[client_id]}, config, centre_on=witnesses)
    row = dict(zip(witnesses, found.distances[-1, :-1].tolist(), strict=True))
    means = {
        cohort: float(np.mean([row[c] for c in witnesses if cohorts[c] == cohort]))
        for cohort in sorted(set(cohorts.values()), key=cohort_number)
    }
    nearest = min(means, key=lambda cohort: means[cohort]) if means else ROOT_COHORT
    return Placement(nearest, means)


def _is_witness(state: FederationState, client_id: str) -> bool:
    client = state.clients[client_id]
    return client.cohort_id == client.placed_cohort


def _distances(
    signatures: Mapping[str, Signature],
    config: OnboardingConfig,
    centre_on: Mapping[str, Signature] | None = None,
) -> ClassDistances:
    return class_distances(
        signatures,
        overlap=config.overlap,
        center=config.center,
        penalty=config.penalty,
        percentile=config.percentile,
        centre_on=centre_on,
    )


def _names(state: FederationState, labels: Sequence[int]) -> dict[int, str]:
    """Return the cohort of every label: the root for the largest group, of equals the first."""
    sizes = {label: labels.count(label) for label in sorted(set(labels))}
    largest = max(sizes, key=lambda label: sizes[label]) if sizes else 0
    others = [label for label in sizes if label != largest]
    n_known = 1 + max(cohort_number(c) for c in state.cohorts)
    return {largest: ROOT_COHORT} | {label: f"c{n_known + k}" for k, label in enumerate(others)}
