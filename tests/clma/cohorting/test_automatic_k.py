from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.cohorting.automatic_k import choose_groups
from clma.errors import InvalidConfigError

PENALIZED = np.array(
    [
        [0, 0.163265, 2, 2],
        [0.163265, 0, 2, 2],
        [2, 2, 0, 1.111111],
        [2, 2, 1.111111, 0],
    ]
)
SUMMED = np.array(
    [
        [0, 0.08, 0.02, 0.777],
        [0.08, 0, 0.02, 0.777],
        [0.02, 0.02, 0, 0.9],
        [0.777, 0.777, 0.9, 0],
    ]
)
AVERAGED = np.array(
    [
        [0, 0.114286, 0.2, 0.88],
        [0.114286, 0, 0.2, 0.88],
        [0.2, 0.2, 0, 1.0],
        [0.88, 0.88, 1.0, 0],
    ]
)


def blocks(sizes: list[int], *, within: float, across: float) -> NDArray[np.float64]:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    distances = np.where(labels[:, None] == labels, within, across)
    np.fill_diagonal(distances, 0.0)
    return distances


@pytest.mark.parametrize(
    ("distances", "labels", "silhouette", "variation"),
    [
        (PENALIZED, (0, 0, 1, 1), 0.68141, 0.45175),
        (AVERAGED, (0, 0, 0, 1), 0.61071, 0.69175),
        (SUMMED, (0, 0, 0, 1), 0.71227, 0.91297),
    ],
)
def test_four_clients_worked_out_by_hand(
    distances: NDArray[np.float64], labels: tuple[int, ...], silhouette: float, variation: float
) -> None:
    found = choose_groups(distances)

    assert found.labels == labels
    assert dict(found.silhouettes)[2] == pytest.approx(silhouette, abs=1e-5)
    assert found.variation == pytest.approx(variation, abs=1e-5)


def test_curve_reaches_one_step_beyond_the_window() -> None:
    found = choose_groups(PENALIZED)

    assert found.window == (2, 2)
    assert dict(found.silhouettes)[3] == pytest.approx(0.45918, abs=1e-5)


@pytest.mark.parametrize("sizes", [[4, 4], [3, 4, 5], [3, 3, 3, 3]])
def test_groups_that_stand_apart_are_found(sizes: list[int]) -> None:
    found = choose_groups(blocks(sizes, within=0.1, across=1.0))

    assert found.labels == tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())
    assert found.rule == "local maximum"


def test_clients_that_are_all_alike_are_one_group_without_a_warning() -> None:
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.01, 0.02, (12, 12))
    distances = np.triu(noise, 1) + np.triu(noise, 1).T

    found = choose_groups(distances)

    assert (found.n_groups, found.rule, found.warning) == (1, "no split", None)


def test_clients_that_are_all_different_are_one_group_with_a_warning() -> None:
    found = choose_groups(blocks([1] * 8, within=0.0, across=1.5))

    assert found.n_groups == 1
    assert "no signal: clients are at a mean distance of 1.50" in str(found.warning)


def test_clients_at_one_place_are_one_group() -> None:
    found = choose_groups(np.zeros((5, 5)))

    assert (found.n_groups, found.rule) == (1, "no distance")


@pytest.mark.parametrize(("distance", "n_groups"), [(0.3, 1), (1.2, 2)])
def test_two_clients_stay_together_if_they_are_near(distance: float, n_groups: int) -> None:
    found = choose_groups(np.array([[0, distance], [distance, 0]]))

    assert (found.n_groups, found.rule) == (n_groups, "pair")


@pytest.mark.parametrize("n", [0, 1])
def test_nobody_and_one_client_need_no_choice(n: int) -> None:
    assert choose_groups(np.zeros((n, n))).labels == (0,) * n


@pytest.mark.parametrize("n_groups", [1, 2, 3, 4])
def test_given_number_is_kept(n_groups: int) -> None:
    found = choose_groups(PENALIZED, n_groups=n_groups)

    assert (found.n_groups, found.rule) == (n_groups, "given")


def test_more_groups_than_clients_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="5 groups are wanted of 4 clients"):
        choose_groups(PENALIZED, n_groups=5)


def test_scale_of_distances_changes_no_group() -> None:
    distances = blocks([3, 4, 5], within=0.1, across=1.0)

    assert choose_groups(distances).labels == choose_groups(1000 * distances).labels


def test_order_of_clients_changes_no_group() -> None:
    distances = blocks([3, 4, 5], within=0.1, across=1.0)
    order = np.random.default_rng(1).permutation(12)

    turned = choose_groups(distances[np.ix_(order, order)]).labels
    together = np.equal.outer(turned, turned)

    labels = np.array(choose_groups(distances).labels)[order]
    assert (together == np.equal.outer(labels, labels)).all()


def test_more_spread_opens_a_wider_window() -> None:
    narrow = choose_groups(blocks([8, 8], within=0.9, across=1.0)).window
    wide = choose_groups(blocks([8, 8], within=0.01, across=1.0)).window

    assert narrow == (2, 3)
    assert wide == (2, 8)


def test_distances_are_not_modified() -> None:
    distances = PENALIZED.copy()

    choose_groups(distances)

    assert (distances == PENALIZED).all()
