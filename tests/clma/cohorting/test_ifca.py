from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clma.cohorting.ifca import shuffled_model, start_apart
from clma.config import FederationConfig, preset_config
from clma.parameters.tensor_file import TensorFile
from clma.records import CohortStatus
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update


def config(**cohorting: int) -> FederationConfig:
    share = ["weights", "flag", "examples", "choice"]
    return preset_config("test", "ifca", privacy={"share": share}, cohorting=cohorting)


def test_first_round_opens_with_k_models_that_differ(shelf: Shelf, base: str) -> None:
    wide = shelf.put({"w": np.arange(64, dtype=np.float32)}).sha256
    state = one_cohort(wide, ["p1"], round_num=0)

    opened = start_apart(state, config(n_models=3), 1, shelf.open, shelf.save)

    assert list(opened.cohorts) == ["c0", "c1", "c2"]
    assert len({c.model_digest for c in opened.cohorts.values()}) == 3


def test_later_rounds_open_as_they_are(shelf: Shelf, base: str) -> None:
    state = one_cohort(base, ["p1"])
    assert start_apart(state, config(), 2, shelf.open, shelf.save) is state


def test_further_model_has_the_entries_of_every_tensor_in_another_order(shelf: Shelf) -> None:
    first = {"a": np.arange(30, dtype=np.float32).reshape(5, 6), "n": np.array(7)}
    digest = shelf.put(first).sha256

    made = shelf.save(shuffled_model(digest, [0, 1], shelf.open))

    with TensorFile(shelf._folder / made) as file:
        values = file.read("a")
        assert file.read("n") == 7
    assert not np.array_equal(values, first["a"])
    assert sorted(values.ravel()) == sorted(first["a"].ravel())


def test_client_votes_where_it_trained(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 6.0, 7.0]}).sha256
    state = one_cohort(base, ["p1", "p2"])
    c1 = dataclasses.replace(
        state.cohorts["c0"], cohort_id="c1", model_digest=other, status=CohortStatus.DORMANT
    )
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c1": c1})
    updates = [update(shelf, "p1", [1, 1, 2], base), update(shelf, "p2", [6, 6, 6], other)]

    outcome = run(shelf, state, updates, config())

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c1"}
    assert models(shelf, outcome) == {"c0": [1, 1, 2], "c1": [6, 6, 6]}


def test_cohort_that_nobody_chose_keeps_its_model(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 6.0, 7.0]}).sha256
    state = one_cohort(base, ["p1"])
    c1 = dataclasses.replace(state.cohorts["c0"], cohort_id="c1", model_digest=other)
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c1": c1})

    outcome = run(shelf, state, [update(shelf, "p1", [1, 1, 2], base)], config())

    assert outcome.state.cohorts["c1"].model_digest == other


@pytest.mark.parametrize("flag", [True, False])
def test_flags_decide_nothing(shelf: Shelf, base: str, flag: bool) -> None:
    outcome = run(
        shelf, one_cohort(base, ["p1"]), [update(shelf, "p1", [1, 1, 2], base, flag=flag)], config()
    )
    assert cohorts_of(outcome) == {"p1": "c0"}
