from __future__ import annotations

import numpy as np
import pytest

from clma.errors import ShapeMismatchError
from clma.signatures.pacfl import (
    class_directions,
    orthonormal_basis,
    principal_angles,
    proximity,
    sign_by_directions,
)

RNG = np.random.default_rng(0)
E1_E2 = np.eye(3)[:, :2]
TILTED = np.array([[1, 0], [0, np.cos(np.pi / 6)], [0, np.sin(np.pi / 6)]])
"""The first axis, and the second one turned by 30 degrees."""


@pytest.mark.parametrize(("mode", "wanted"), [("sum", 30), ("smallest", 0), ("reference", 0)])
def test_the_hand_computed_pair_of_planes(mode: str, wanted: float) -> None:
    assert proximity(E1_E2, TILTED, mode) == pytest.approx(wanted, abs=1e-6)


def test_principal_angles_of_the_same_pair() -> None:
    assert principal_angles(E1_E2, TILTED) == pytest.approx([0, 30], abs=1e-6)


def test_angles_are_those_of_the_spaces_not_of_their_bases() -> None:
    u, v = (np.linalg.qr(RNG.normal(size=(8, 3)))[0] for _ in range(2))
    turn = np.linalg.qr(RNG.normal(size=(3, 3)))[0]

    assert principal_angles(u @ turn, v) == pytest.approx(principal_angles(u, v))


def test_rounding_beyond_one_is_no_angle() -> None:
    u = np.linalg.qr(RNG.normal(size=(50, 6)))[0]
    assert principal_angles(u * (1 + 1e-15), u).tolist() == [0] * 6


def test_sum_has_as_many_terms_as_directions_of_a_class() -> None:
    u, v = (np.linalg.qr(RNG.normal(size=(20, 6)))[0] for _ in range(2))
    assert proximity(u, v, n_angles=2) == pytest.approx(principal_angles(u, v)[:2].sum())


def test_dimension_that_one_client_lacks_counts_as_a_right_angle() -> None:
    assert proximity(np.eye(4)[:, :1], np.eye(4)[:, :2]) == pytest.approx(90)
    assert proximity(np.eye(4)[:, :2], np.eye(4)[:, :1]) == pytest.approx(90)


@pytest.mark.parametrize("mode", ["sum", "smallest", "reference"])
def test_client_that_saw_only_zeros_is_unlike_all_but_its_likes(mode: str) -> None:
    nothing = class_directions(np.zeros((4, 3)), np.zeros(4, int))

    assert proximity(nothing, nothing, mode) == 0
    assert proximity(nothing, np.eye(3)[:, :1], mode) == 90


def test_directions_are_the_main_ones_of_each_class() -> None:
    samples = np.array([[2.0, 0, 0], [3, 0, 0], [0, 0, -1], [0, 0, -4]])

    directions = class_directions(samples, np.array([5, 5, 2, 2]), n_directions=1)

    assert directions == pytest.approx(np.array([[0, 1], [0, 0], [1, 0]]))


def test_class_has_no_more_directions_than_samples() -> None:
    samples = RNG.normal(size=(6, 10))
    assert class_directions(samples, np.array([0, 1, 1, 2, 2, 2])).shape == (10, 1 + 2 + 3)


def test_repeated_samples_add_no_direction() -> None:
    samples = np.repeat(RNG.normal(size=(2, 10)), 4, axis=0)
    assert class_directions(samples, np.zeros(8, int)).shape == (10, 2)


def test_direction_that_two_classes_share_is_one_dimension() -> None:
    samples = np.repeat(RNG.normal(size=(1, 10)), 2, axis=0)
    directions = class_directions(samples, np.array([0, 1]))

    assert directions.shape == (10, 2)
    assert orthonormal_basis(directions).shape == (10, 1)


def test_order_of_the_samples_does_not_matter() -> None:
    samples, labels = RNG.normal(size=(12, 5)), np.arange(12) % 3
    order = RNG.permutation(12)

    turned = class_directions(samples[order], labels[order])

    assert turned == pytest.approx(class_directions(samples, labels))


def test_new_names_for_the_classes_leave_the_space() -> None:
    """Drift of the labels alone cannot be seen."""
    samples, labels = RNG.normal(size=(30, 9)), np.arange(30) % 3

    before, after = (
        orthonormal_basis(class_directions(samples, y)) for y in (labels, (labels + 1) % 3)
    )

    assert proximity(before, after) == pytest.approx(0, abs=1e-4)


def test_samples_of_any_shape_are_flattened() -> None:
    images, labels = RNG.normal(size=(5, 2, 3)), np.zeros(5, int)

    signed = sign_by_directions(images, labels, n_directions=2)

    flat = class_directions(images.reshape(5, 6), labels, n_directions=2)
    np.testing.assert_array_equal(signed.arrays["directions"], flat)


@pytest.mark.parametrize(("n", "n_labels"), [(0, 0), (3, 2)])
def test_samples_without_labels_are_refused(n: int, n_labels: int) -> None:
    with pytest.raises(ShapeMismatchError, match=f"{n} samples, {n_labels} labels"):
        class_directions(np.ones((n, 4)), np.zeros(n_labels, int))
