from __future__ import annotations

import numpy as np
import pytest

from clma.aggregation.flash import TAU, FlashState, flash_step
from clma.errors import ShapeMismatchError


def test_the_first_step_computed_by_hand() -> None:
    fresh = FlashState.fresh(2)
    state, step = flash_step(fresh, np.array([0.1, -0.02]), learning_rate=0.01)
    np.testing.assert_allclose(state.mean, [0.01, -0.002])
    np.testing.assert_allclose(state.square, [1.0099e-4, 4.99e-6])
    np.testing.assert_allclose(state.drift, [0.009898, 0.000394], rtol=1e-3)
    np.testing.assert_allclose(step, [0.086853, -0.007043], rtol=1e-4)


def test_a_leap_of_the_updates_is_answered_with_the_longest_step_and_not_with_a_step_back() -> None:
    """Unclamped, the denominator is sqrt(v) - d + tau = 0.1 - 0.98 + 0.001."""
    _, step = flash_step(FlashState.fresh(2), np.array([1.0, -1.0]), learning_rate=0.01)
    np.testing.assert_allclose(step, 0.01 * np.array([0.1, -0.1]) / TAU)


def test_steps_get_longer_when_the_updates_change_their_size() -> None:
    state = FlashState.fresh(1)
    for _ in range(200):
        state, quiet = flash_step(state, np.array([0.01]), learning_rate=0.01)
    changed, longer = flash_step(state, np.array([0.08]), learning_rate=0.01)
    without = FlashState(state.mean, changed.square, np.zeros(1))
    _, plain = flash_step(without, np.array([0.08]), learning_rate=0.01)
    assert longer > plain * 1.02 > quiet


def test_parameters_do_not_touch_each_other() -> None:
    updates = np.random.default_rng(0).normal(0, 0.1, (5, 3))
    together, alone = FlashState.fresh(3), FlashState.fresh(1)
    for update in updates:
        together, step = flash_step(together, update, learning_rate=0.01)
        alone, single = flash_step(alone, update[1:2], learning_rate=0.01)
    assert step[1] == single[0]


def test_no_update_is_no_step() -> None:
    state, step = flash_step(FlashState.fresh(3), np.zeros(3), learning_rate=0.01)
    assert step.tolist() == [0, 0, 0]
    assert (state.square > 0).all()


def test_the_state_before_is_not_modified() -> None:
    state = FlashState.fresh(2)
    flash_step(state, np.ones(2), learning_rate=0.01)
    assert state.mean.tolist() == state.drift.tolist() == [0, 0]


def test_the_largest_update_is_finite() -> None:
    state = FlashState.fresh(2)
    for sign in (1, -1, 1):
        state, step = flash_step(state, sign * np.array([2e100, 1.0]), learning_rate=0.01)
        assert np.isfinite([step, state.mean, state.square, state.drift]).all()


def test_a_state_of_another_model_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="has 2 parameters"):
        flash_step(FlashState.fresh(3), np.ones(2), learning_rate=0.01)
