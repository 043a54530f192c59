from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidConfigError
from clma.simulation.plant import CLASSES, CONDITIONS, VARIABLES, PlantSource


def _windows(condition: str = "base", *, client: str = "plant-01", n: int = 400, seed: int = 0):
    return PlantSource(seed).training(client, condition, n, np.random.default_rng(1))


def test_windows_are_finite_float32_and_all_classes_occur() -> None:
    windows, labels = _windows()

    assert windows.shape == (400, len(VARIABLES), 30)
    assert windows.dtype == np.float32
    assert np.isfinite(windows).all()
    assert set(labels.tolist()) == set(range(len(CLASSES)))


def test_generated_values_depend_on_the_generator_alone() -> None:
    np.testing.assert_array_equal(_windows()[0], _windows()[0])


def test_plants_differ_by_a_constant_offset() -> None:
    (a, _), (b, _) = _windows(), _windows(client="plant-02")

    difference = np.sinh(a.astype(np.float64)) - np.sinh(b.astype(np.float64))

    assert np.ptp(difference, axis=(0, 2)).max() < 1e-3
    assert np.abs(difference.mean(axis=(0, 2))).max() > 0.05


@pytest.mark.parametrize("condition", CONDITIONS[1:])
def test_another_operating_point_moves_the_levels(condition: str) -> None:
    base, moved = (_windows(c)[0].mean(axis=(0, 2)) for c in ("base", condition))

    assert np.abs(moved - base).mean() > 0.5


def test_normal_running_is_autocorrelated() -> None:
    windows, labels = _windows()
    normal = windows[labels == 0].astype(np.float64)

    assert np.corrcoef(normal[:, :, :-1].ravel(), normal[:, :, 1:].ravel())[0, 1] > 0.5


def test_no_fault_is_a_level_that_one_variable_gives_away() -> None:
    windows, labels = _windows(n=2000)
    levels = windows.mean(axis=2)

    for fault in range(1, len(CLASSES)):
        gap = np.abs(levels[labels == fault].mean(axis=0) - levels[labels == 0].mean(axis=0))
        assert (gap < 3 * levels[labels == 0].std(axis=0)).all()


def test_unknown_operating_point_names_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match="'summer' is unknown, wanted one of base"):
        _windows("summer")


def _label_counts(client: str, *, skew: float | None = 0.5) -> np.ndarray:
    source = PlantSource(0, skew=skew)
    _, labels = source.training(client, "base", 5000, np.random.default_rng(1))
    return np.bincount(labels, minlength=len(CLASSES)) / 5000


def test_skewed_plants_have_class_shares_of_their_own() -> None:
    one, same, other = (_label_counts(client) for client in ("plant-01", "plant-01", "plant-02"))

    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.2


def test_skew_leaves_the_plant_and_what_is_held_out() -> None:
    (x, y), (x_skewed, y_skewed) = (
        PlantSource(0, skew=skew).held_out("plant-01", "base", np.random.default_rng(1))
        for skew in (None, 0.5)
    )

    np.testing.assert_array_equal(x, x_skewed)
    np.testing.assert_array_equal(y, y_skewed)
