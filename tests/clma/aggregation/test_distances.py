from __future__ import annotations

import numpy as np

from clma.aggregation.distances import squared_distances


def test_they_do_not_depend_on_where_movements_are_measured_from() -> None:
    points = np.random.default_rng(0).normal(size=(6, 40))
    moved = points - points[3]
    wanted = [[float((p - q) @ (p - q)) for q in points] for p in points]
    for rows in (points, moved):
        np.testing.assert_allclose(squared_distances(rows @ rows.T), wanted, atol=1e-10)


def test_what_rounding_does_not_tell_apart_is_at_one_place() -> None:
    off = 1 - 1e-14
    gram = np.array([[1.0, off, 0.9], [off, 1.0, 0.9], [0.9, 0.9, 1.0]])
    assert (squared_distances(gram) > 0).tolist() == [[False, False, True]] * 2 + [
        [True, True, False]
    ]
