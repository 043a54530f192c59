from __future__ import annotations

import numpy as np
import pytest

from clma.parameters.moves import cosine_distances, measure_movements, signed_means


def gram_of(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows) @ np.array(rows).T


def test_distances_of_the_hand_computed_updates() -> None:
    distances = cosine_distances(gram_of([[1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 2, 0]]))
    assert distances.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]


def test_opposite_updates_have_distance_two() -> None:
    assert cosine_distances(gram_of([[1, 1], [-2, -2]]))[0, 1] == pytest.approx(2.0)


def test_update_of_zero_has_distance_one_to_all() -> None:
    assert cosine_distances(gram_of([[0, 0], [1, 0]])).tolist() == [[0, 1], [1, 0]]


def test_streamed_products_equal_the_dense_ones(shelf) -> None:
    rng = np.random.default_rng(0)
    models = [{"a": rng.normal(size=(7, 9)), "b": rng.normal(size=70_000)} for _ in range(4)]
    files = [shelf.open(shelf.put(m)) for m in models]
    dense = np.array([np.concatenate([m["a"].ravel(), m["b"]]) for m in models])
    updates = dense[1:] - dense[0]

    movements = measure_movements(files[1:], files[0], ["a", "b"])

    np.testing.assert_allclose(movements.gram, updates @ updates.T, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(movements.means, updates.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(movements.layer_squares.sum(axis=0), np.diag(movements.gram))


def test_top_layers_carry_the_shares_of_the_squared_update(shelf) -> None:
    base, moved = shelf.put({"a": [0.0], "b": [0.0, 0.0]}), shelf.put({"a": [3.0], "b": [1.0, 0.0]})
    movements = measure_movements([shelf.open(moved)], shelf.open(base), ["a", "b"])
    assert movements.top_layers(0) == (("a", pytest.approx(0.9)), ("b", pytest.approx(0.1)))


def test_direction_is_the_sign_of_the_mean(shelf) -> None:
    base = shelf.put({"w": [1.0, 1.0]})
    files = [shelf.open(shelf.put({"w": w})) for w in ([2.0, 1.0], [1.0, 0.0], [1.0, 1.0])]
    assert signed_means(measure_movements(files, shelf.open(base), ["w"])) == ("up", "down", "none")
