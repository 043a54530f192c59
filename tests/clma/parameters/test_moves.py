from __future__ import annotations

import numpy as np
import pytest

from clma.parameters.moves import (
    Movements,
    blended_distances,
    cosine_distances,
    signed_means,
)


def gram_of(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows) @ np.array(rows).T


def test_distances_of_the_hand_computed_updates() -> None:
    distances = cosine_distances(gram_of([[1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 2, 0]]))
    assert distances.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_opposite_updates_have_distance_two() -> None:
    assert cosine_distances(gram_of([[1, 1], [-2, -2]]))[0, 1] == pytest.approx(2.0)


def test_update_of_zero_has_distance_one_to_all() -> None:
    assert cosine_distances(gram_of([[0, 0], [1, 0]])).tolist() == [[0, 1], [1, 0]]


def moved(layer_squares: list[list[float]], means: list[float]) -> Movements:
    squares = np.array(layer_squares)
    names = tuple("abcdef"[: len(squares)])
    return Movements(np.diag(squares.sum(axis=0)), squares, np.array(means), names)


def test_top_layers_carry_the_shares_of_the_squared_update() -> None:
    movements = moved([[9.0], [1.0]], [1.0])
    assert movements.top_layers(0) == (("a", pytest.approx(0.9)), ("b", pytest.approx(0.1)))


def test_direction_is_the_sign_of_the_mean() -> None:
    assert signed_means(moved([[1.0, 1.0, 0.0]], [0.5, -0.5, 0.0])) == ("up", "down", "none")


def two_parts(whole: list[list[float]], output: list[list[float]] | None) -> Movements:
    part = None if output is None else gram_of(output)
    return Movements(gram_of(whole), np.ones((1, len(whole))), np.zeros(len(whole)), ("w",), part)


def test_output_layer_has_its_share_in_a_distance() -> None:
    movements = two_parts([[1, 1], [1, -1]], [[1, 0], [-1, 0]])
    distances = blended_distances(movements, 2, output_weight=0.25)
    assert distances[0, 1] == pytest.approx(0.75 * 1.0 + 0.25 * 2.0)


def test_output_layer_that_did_not_move_has_a_cosine_of_zero() -> None:
    movements = two_parts([[1, 0], [2, 0]], [[0, 0], [1, 0]])
    assert blended_distances(movements, 2, output_weight=0.5)[0, 1] == pytest.approx(0.5)


def test_without_an_output_layer_whole_movements_count() -> None:
    movements = two_parts([[1, 0], [2, 0]], None)
    assert blended_distances(movements, 2, output_weight=0.5)[0, 1] == 0


def test_distances_are_those_of_the_first_movements() -> None:
    movements = two_parts([[1, 0], [0, 1], [3, 3]], [[1, 0], [0, 1], [1, 1]])
    assert blended_distances(movements, 2, output_weight=0.5).tolist() == [[0, 1], [1, 0]]
