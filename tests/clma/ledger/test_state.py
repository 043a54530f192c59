from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clma.errors import DamagedStoreError, RoundStateError
from clma.ledger.chain import NO_ENTRY, Entry, EntryKind
from clma.ledger.state import changes, fold
from clma.records import (
    ArtifactRef,
    ChoiceMemory,
    ClientState,
    ClientStatus,
    Cohort,
    CohortStatus,
    FederationState,
    Phase,
)

ids = st.sampled_from(["p1", "p2", "P-3", "c1"])
cohort_ids = st.sampled_from(["c0", "c1", "c2", "c10"])
digests = st.sampled_from(["aa" * 32, "bb" * 32])
rounds = st.integers(0, 99)
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
times = st.timedeltas(dt.timedelta(0), dt.timedelta(9999)).map(lambda age: EPOCH + age)
clients = st.builds(
    ClientState,
    client_id=ids,
    cohort_id=cohort_ids,
    status=st.sampled_from(ClientStatus),
    serving_digest=digests,
    serving_since=rounds,
    moved_round=st.none() | rounds,
    origin_cohort=st.none() | cohort_ids,
    signature_round=st.none() | rounds,
    choices=st.builds(
        ChoiceMemory,
        leaning=st.none() | cohort_ids,
        refused=st.lists(st.tuples(cohort_ids, rounds)).map(tuple),
    ),
)
cohorts = st.builds(
    Cohort,
    cohort_id=cohort_ids,
    parent=st.none() | cohort_ids,
    born_round=rounds,
    model_digest=digests,
    previous_digest=st.none() | digests,
    status=st.sampled_from(CohortStatus),
    origin_digest=st.none() | digests,
    optimizer_digest=st.none() | digests,
    learning_rate_factor=st.floats(1e-6, 1.0),
    alike_within=st.floats(0, 2),
    birth_digest=st.none() | digests,
)
states = st.builds(
    FederationState,
    federation=st.just("f"),
    round_num=rounds,
    phase=st.sampled_from(Phase),
    clients=st.lists(clients).map(lambda found: {c.client_id: c for c in found}),
    cohorts=st.lists(cohorts).map(lambda found: {c.cohort_id: c for c in found}),
    consensus_digest=st.none() | digests,
    deadline=st.none() | times,
    sealed=st.none() | st.builds(ArtifactRef, st.just("rounds/x.json"), digests),
)


def entry(payload: object) -> Entry:
    stored = json.loads(json.dumps(payload))
    return Entry(0, EntryKind.ROUND_HELD, EPOCH, NO_ENTRY, stored)


@settings(max_examples=40, deadline=None)
@given(states, states)
def test_the_changes_between_two_states_lead_from_one_to_the_other(
    a: FederationState, b: FederationState
) -> None:
    b = dataclasses.replace(
        b, clients={**a.clients, **b.clients}, cohorts={**a.cohorts, **b.cohorts}
    )
    before = [entry(changes(FederationState(""), a))]

    assert fold(before) == a
    assert fold([*before, entry(changes(a, b))]) == b
    assert fold([entry(changes(a, b))], a) == b


@settings(max_examples=40, deadline=None)
@given(states)
def test_equal_states_have_no_changes(state: FederationState) -> None:
    assert changes(state, copy.deepcopy(state)) == {}


@settings(max_examples=40, deadline=None)
@given(states)
def test_clients_are_sorted_by_id_and_cohorts_by_birth(state: FederationState) -> None:
    folded = fold([entry(changes(FederationState(""), state))])

    assert list(folded.clients) == sorted(state.clients)
    assert [c for c in ("c0", "c1", "c2", "c10") if c in folded.cohorts] == list(folded.cohorts)


def test_what_was_served_once_is_never_forgotten() -> None:
    a = FederationState("f", cohorts={"c0": Cohort("c0", None, 0, "aa")})

    with pytest.raises(RoundStateError, match="lacks"):
        changes(a, FederationState("f"))


def test_a_record_that_cannot_be_read_names_its_entry() -> None:
    with pytest.raises(DamagedStoreError, match="00000000"):
        fold([entry({"clients": [{"client_id": 3}]})])


def test_cohorts_from_before_there_were_optimisers_have_none() -> None:
    cohort = {"cohort_id": "c0", "parent": None, "born_round": 0, "model_digest": "aa" * 32}
    assert fold([entry({"cohorts": [cohort]})]).cohorts == {"c0": Cohort("c0", None, 0, "aa" * 32)}


def test_client_of_an_earlier_version_has_compared_nothing() -> None:
    old = {"client_id": "p1", "cohort_id": "c0", "status": "active", "serving_digest": "aa" * 32}
    entry = Entry(0, EntryKind.FEDERATION_CREATED, EPOCH, NO_ENTRY, {"clients": [old]})
    assert fold([entry]).clients["p1"].choices == ChoiceMemory()
