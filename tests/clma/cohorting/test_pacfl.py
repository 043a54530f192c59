from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.cohorting.pacfl import place_by_angles, proximities
from clma.config import FederationConfig, preset_config
from clma.errors import ShapeMismatchError
from clma.records import ROOT_COHORT, ClientState, ClientStatus, FederationState
from clma.signatures.pacfl import sign_by_directions
from clma.signatures.signature import Signature
from tests.clma.shelf import one_cohort

CLIENTS = ("p1", "p2", "p3", "p4", "p5")
FAR = {"p2", "p5"}


def config(**cohorting: object) -> FederationConfig:
    share = ["weights", "examples", "signature"]
    return preset_config("test", "pacfl", privacy={"share": share}, cohorting=cohorting)


def data(client_id: str, *, far: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return samples of two classes: around the first two axes, or around the next two."""
    rng = np.random.default_rng(int(client_id[1:]))
    labels = np.arange(20) % 2
    axes = np.eye(12)[labels + (2 if far else 0)]
    return axes + rng.normal(0, 0.05, (20, 12)), labels


def sign(client_id: str, _round_num: int = 1) -> Signature:
    return sign_by_directions(*data(client_id, far=client_id in FAR), n_directions=1)


def start(client_ids: tuple[str, ...] = CLIENTS) -> FederationState:
    return one_cohort("m0", list(client_ids), round_num=0)


def placed(state: FederationState) -> Mapping[str, str]:
    return {c.client_id: c.cohort_id for c in state.clients.values()}


def test_two_groups_of_like_data_are_found() -> None:
    state = place_by_angles(start(), config(), 1, sign)
    assert placed(state) == {"p1": "c1", "p2": "c2", "p3": "c1", "p4": "c1", "p5": "c2"}


def test_root_cohort_keeps_the_initial_model_for_nobody() -> None:
    state = place_by_angles(start(), config(), 1, sign)

    assert state.members(ROOT_COHORT) == ()
    assert {c.model_digest for c in state.cohorts.values()} == {"m0"}


def test_equal_data_are_one_cohort() -> None:
    state = place_by_angles(start(), config(), 1, lambda *_: sign("p1"))
    assert set(placed(state).values()) == {"c1"}


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_to_stand_apart_are_one_cohort(n: int) -> None:
    state = place_by_angles(start(CLIENTS[:n]), config(), 1, sign)
    assert set(placed(state).values()) == {"c1"}


@pytest.mark.parametrize(("beta", "n_cohorts"), [(1e-3, 5), (60.0, 2), (270.0, 1)])
def test_beta_decides_where_it_is_set(beta: float, n_cohorts: int) -> None:
    state = place_by_angles(start(), config(max_angle_deg=beta), 1, sign)
    assert len(set(placed(state).values())) == n_cohorts


def test_beta_holds_for_two_clients_as_well() -> None:
    state = place_by_angles(start(("p1", "p2")), config(max_angle_deg=60.0), 1, sign)
    assert placed(state) == {"p1": "c1", "p2": "c2"}


def test_later_data_move_nobody() -> None:
    first = place_by_angles(start(), config(), 1, sign)
    assert place_by_angles(first, config(), 2, lambda *_: sign("p2")) is first


def test_newcomer_goes_to_the_cohort_that_is_nearest_to_it() -> None:
    first = place_by_angles(start(), config(), 1, sign)
    newcomer = ClientState("p9", ROOT_COHORT, ClientStatus.ACTIVE, "m0", joined_round=4)
    state = dataclasses.replace(first, clients={**first.clients, "p9": newcomer})

    later = place_by_angles(state, config(), 4, lambda c, _: sign("p5" if c == "p9" else c))

    assert placed(later) == {**placed(first), "p9": "c2"}


def test_client_that_joins_later_is_not_placed_yet() -> None:
    state = start(("p1", "p2"))
    late = dataclasses.replace(state.clients["p2"], joined_round=3)
    state = dataclasses.replace(state, clients={**state.clients, "p2": late})

    assert placed(place_by_angles(state, config(), 1, sign)) == {"p1": "c1", "p2": "c0"}


@pytest.mark.parametrize("status", [ClientStatus.FORGOTTEN, ClientStatus.PAUSED])
def test_client_that_takes_no_part_is_not_asked(status: ClientStatus) -> None:
    state = start()
    away = dataclasses.replace(state.clients["p1"], status=status)
    asked: list[str] = []

    place_by_angles(
        dataclasses.replace(state, clients={**state.clients, "p1": away}),
        config(),
        1,
        lambda c, _: asked.append(c) or sign(c),
    )

    assert asked == ["p2", "p3", "p4", "p5"]


def test_order_of_the_clients_only_permutes_the_matrix() -> None:
    turned = CLIENTS[::-1]

    matrix = proximities({c: sign(c) for c in CLIENTS})
    other = proximities({c: sign(c) for c in turned})

    assert other == pytest.approx(matrix[::-1, ::-1])
    np.testing.assert_array_equal(matrix, matrix.T)
    assert not np.diag(matrix).any()


def test_other_classes_are_other_data() -> None:
    x, y = data("p1", far=False)
    signatures = {str(k): sign_by_directions(x[y == k], y[y == k], n_directions=1) for k in (0, 1)}

    assert proximities(signatures)[0, 1] == pytest.approx(90, abs=5)


def test_client_with_another_number_of_features_is_named() -> None:
    wide = sign_by_directions(np.ones((3, 7)), np.zeros(3, int))
    with pytest.raises(ShapeMismatchError, match="client 'p4': signature has 7 features"):
        place_by_angles(start(), config(), 1, lambda c, _: wide if c == "p4" else sign(c))
