from __future__ import annotations

import numpy as np
import pytest

from clma.aggregation import too_few_voters
from clma.aggregation.krum import krum_scores
from clma.config import AggregationConfig
from clma.errors import NotEnoughClientsError
from tests.clma.aggregation.voters import POINTS, model_file, model_of
from tests.clma.shelf import Shelf


def test_scores_are_sums_of_the_closest_squared_distances() -> None:
    scores = krum_scores(POINTS @ POINTS.T, n_byzantine=1)
    np.testing.assert_allclose(scores, [0.03, 0.09, 0.06, 0.07, 24784.21], rtol=1e-9)


def test_the_update_with_the_closest_neighbours_is_the_model(shelf: Shelf) -> None:
    assert model_of(shelf, POINTS, method="krum").tolist() == POINTS[0].tolist()


def test_the_mean_of_several_is_of_equal_weights(shelf: Shelf) -> None:
    made = model_of(shelf, POINTS, weights=[1, 1, 9, 1, 1], method="krum", n_selected=2)
    np.testing.assert_allclose(made, (POINTS[0] + POINTS[2]) / 2)


@pytest.mark.parametrize("angle", np.linspace(0.1, 1.5, 7))
def test_of_equal_scores_the_first_client_is_taken(shelf: Shelf, angle: float) -> None:
    """Rounding does not choose between the corners of a square."""
    turn = angle + np.array([0, 2, 1, 3]) * np.pi / 2
    rows = np.array([*zip(np.cos(turn), np.sin(turn), strict=True), (90.0, 90.0)]) + 1.0
    assert model_of(shelf, rows, method="krum").tolist() == rows[0].tolist()


def test_counters_are_those_of_the_chosen(shelf: Shelf) -> None:
    counts = (3, 900, 4, 5, 2**40)
    models = [
        {"w": point, "n": np.array(count)} for point, count in zip(POINTS, counts, strict=True)
    ]
    made = model_file(shelf, models, method="krum", n_selected=2)
    assert shelf.read(made.sha256, "n") == [4]


@pytest.mark.parametrize(
    ("n_byzantine", "n_selected", "needed"), [(0, 1, 3), (1, 1, 5), (1, 2, 5), (1, 3, 6), (3, 1, 9)]
)
def test_it_refuses_fewer_voters_than_its_promise_needs(
    n_byzantine: int, n_selected: int, needed: int
) -> None:
    config = AggregationConfig(method="krum", n_byzantine=n_byzantine, n_selected=n_selected)
    assert too_few_voters(needed, config) is None
    assert str(too_few_voters(needed - 1, config)).endswith(f"'krum' needs {needed}")


def test_a_model_of_too_few_is_an_error(shelf: Shelf) -> None:
    with pytest.raises(NotEnoughClientsError, match=r"4 updates have a weight, .* needs 5"):
        model_of(shelf, POINTS[:4], method="krum")
