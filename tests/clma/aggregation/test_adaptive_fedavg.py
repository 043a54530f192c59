from __future__ import annotations

import numpy as np
import pytest

from clma.aggregation.adaptive_fedavg import (
    MIN_FACTOR,
    AdaptiveState,
    learning_rate_factor,
    observe_model,
)
from clma.errors import ShapeMismatchError


def factors(*models: list[float]) -> list[float]:
    """Return the factor after each model."""
    state = AdaptiveState.fresh(len(models[0]))
    found = []
    for weights in models:
        state = observe_model(state, np.array(weights))
        found.append(learning_rate_factor(state))
    return found


def test_the_first_rounds_computed_by_hand() -> None:
    """Variances 4, 4, 1.968; ratios 1, 1, .492, whose means are 1, 1, .7098; over 1, 2, 3."""
    assert factors([2.0], [4.0], [4.0]) == pytest.approx([1.0, 0.5, 0.236584], abs=1e-6)


def test_every_factor_is_a_share_of_the_first_rate() -> None:
    rng = np.random.default_rng(0)
    for factor in factors(
        *(rng.normal(0, 10 ** rng.uniform(-3, 3), 4).tolist() for _ in range(99))
    ):
        assert MIN_FACTOR <= factor <= 1


def test_the_rate_falls_while_the_model_settles_and_rises_when_it_moves() -> None:
    settling = [[10 - 9 * 0.5**t] for t in range(10)]
    found = factors(*settling, [30.0])
    assert found[1:10] == sorted(found[1:10], reverse=True)
    assert found[10] > 5 * found[9]


def test_clients_learn_on_when_the_model_stands_still() -> None:
    assert factors(*[[1.0, 2.0]] * 300)[-1] >= MIN_FACTOR
    assert factors(*[[0.0, 0.0]] * 5) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])


def test_before_the_first_round_the_rate_is_the_first_one() -> None:
    assert learning_rate_factor(AdaptiveState.fresh(3)) == 1


def test_units_of_the_weights_do_not_matter() -> None:
    rows = np.random.default_rng(1).normal(size=(6, 3))
    assert factors(*(rows * 2.0**20).tolist()) == factors(*rows.tolist())


def test_a_state_of_another_model_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="model has 2 parameters, the optimiser's state 3"):
        observe_model(AdaptiveState.fresh(3), np.ones(2))
