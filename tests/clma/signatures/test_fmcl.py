from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.errors import InvalidUpdateError, ShapeMismatchError
from clma.signatures.fmcl import SignatureNoise, class_means, sign_by_class_means
from clma.signatures.signature import Signature


def data(n: int = 900, n_features: int = 4) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    return rng.normal(3.0, 1.0, (n, n_features)), rng.integers(0, 3, n)


class Unchanged:
    """Samples as they are."""

    dim = 0
    fingerprint = "unchanged"

    def __call__(self, batch: NDArray[np.floating]) -> NDArray[np.floating]:
        return batch


unchanged = Unchanged()


def signed(**changes: NDArray[np.generic]) -> Signature:
    arrays = {
        "classes": np.array([0, 2]),
        "means": np.array([[1.0, 0.0], [0.0, 1.0]]),
        "shares": np.array([0.25, 0.75]),
    }
    return Signature("fmcl", {**arrays, **changes})


def test_means_and_shares_are_those_of_each_class() -> None:
    samples, labels = data()

    told = class_means(sign_by_class_means(samples, labels, unchanged))

    for row, label in enumerate(told.classes):
        np.testing.assert_allclose(told.means[row], samples[labels == label].mean(axis=0), 1e-6)
        assert told.shares[row] == pytest.approx((labels == label).mean())


def test_order_of_samples_changes_nothing() -> None:
    samples, labels = data()
    order = np.random.default_rng(1).permutation(len(labels))

    one = sign_by_class_means(samples, labels, unchanged).arrays
    two = sign_by_class_means(samples[order], labels[order], unchanged).arrays

    np.testing.assert_allclose(one["means"], two["means"], rtol=1e-6)
    assert (one["shares"] == two["shares"]).all()


def test_encoder_sees_samples_in_pieces_and_all_of_them() -> None:
    samples, labels = data(n=600)
    seen: list[int] = []

    class Counting(Unchanged):
        def __call__(self, batch: NDArray[np.floating]) -> NDArray[np.floating]:
            seen.append(len(batch))
            return batch

    sign_by_class_means(samples, labels, Counting())

    assert sum(seen) == 600
    assert max(seen) <= 256


def test_class_of_too_few_samples_is_left_out() -> None:
    samples = np.array([[1.0], [1.0], [1.0], [9.0]])

    told = class_means(
        sign_by_class_means(samples, np.array([0, 0, 0, 1]), unchanged, min_examples=2)
    )

    assert told.classes.tolist() == [0]
    assert told.shares.tolist() == [1.0]


def test_client_whose_classes_are_all_too_small_is_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="largest class has 2 samples, wanted at least 5"):
        sign_by_class_means(np.ones((4, 2)), np.array([0, 0, 1, 1]), unchanged, min_examples=5)


def test_embedding_that_is_not_finite_is_refused_by_class() -> None:
    samples, labels = data()
    samples[labels == 2] = np.nan

    with pytest.raises(InvalidUpdateError, match=r"class 2: .* NaN or infinite"):
        sign_by_class_means(samples, labels, unchanged)


def test_zero_mean_is_refused_by_class() -> None:
    with pytest.raises(InvalidUpdateError, match="class 4: the mean embedding is zero"):
        sign_by_class_means(np.array([[1.0], [-1.0]]), np.array([4, 4]), unchanged)


@pytest.mark.parametrize(
    ("samples", "labels"),
    [(np.ones((3, 2)), np.zeros(2, int)), (np.ones((0, 2)), np.zeros(0, int))],
)
def test_labels_and_samples_go_together(
    samples: NDArray[np.float64], labels: NDArray[np.int64]
) -> None:
    with pytest.raises(ShapeMismatchError, match="wanted as many, not 0"):
        sign_by_class_means(samples, labels, unchanged)


@pytest.mark.parametrize("labels", [np.array([0.0, 1.0]), np.array([-1, 0])])
def test_labels_that_are_no_class_indices_are_refused(labels: NDArray[np.generic]) -> None:
    with pytest.raises(InvalidUpdateError, match="labels must be integers of at least 0"):
        sign_by_class_means(np.ones((2, 2)), labels, unchanged)


def test_encoder_without_one_row_a_sample_is_refused() -> None:
    class OfTheFirst(Unchanged):
        def __call__(self, batch: NDArray[np.floating]) -> NDArray[np.floating]:
            return batch[:1]

    with pytest.raises(ShapeMismatchError, match=r"embeddings of 3 samples have shape \(1, 2\)"):
        sign_by_class_means(np.ones((3, 2)), np.zeros(3, int), OfTheFirst())


def test_signature_names_the_encoder() -> None:
    assert sign_by_class_means(*data(), unchanged).encoder == "unchanged"


def test_noise_of_nothing_only_shortens() -> None:
    noise = SignatureNoise(1.0, 0.0, np.random.default_rng(0))

    signature = sign_by_class_means(
        np.array([[0.0, 5.0], [0.5, 0.0]]), np.array([0, 1]), unchanged, noise=noise
    )

    np.testing.assert_allclose(signature.arrays["means"], [[0, 1], [0.5, 0]])


def test_noise_of_a_mean_falls_with_its_samples() -> None:
    def spread(n: int) -> float:
        noise = SignatureNoise(2.0, 3.0, np.random.default_rng(0))
        samples = np.zeros((n, 4000))
        samples[:, 0] = 1.0
        signature = sign_by_class_means(samples, np.zeros(n, int), unchanged, noise=noise)
        return float(signature.arrays["means"][0, 1:].std())

    assert spread(10) == pytest.approx(6.0 / 10, rel=0.05)
    assert spread(100) == pytest.approx(6.0 / 100, rel=0.05)


@pytest.mark.parametrize(("clip_norm", "noise_multiplier"), [(0.0, 1.0), (1.0, -1.0)])
def test_noise_out_of_range_is_refused(clip_norm: float, noise_multiplier: float) -> None:
    with pytest.raises(InvalidUpdateError, match="wanted above 0 and at least 0"):
        SignatureNoise(clip_norm, noise_multiplier, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (Signature("pacfl", {}), "kind 'pacfl', wanted 'fmcl'"),
        (Signature("fmcl", {"means": np.ones((1, 1))}), "lacks classes, shares"),
        (signed(classes=np.array([0])), "have shapes"),
        (signed(means=np.ones(2)), "have shapes"),
        (signed(classes=np.array([2, 0])), "not rising"),
        (signed(classes=np.array([-1, 0])), "not rising"),
        (signed(classes=np.array([0.5, 1.0])), "not rising"),
        (signed(shares=np.array([0.5, 0.7])), "add up to 1.2"),
        (signed(shares=np.array([0.0, 1.0])), "run from 0"),
        (signed(means=np.array([[1.0, 0.0], [0.0, 0.0]])), "class 2: the mean embedding is zero"),
    ],
)
def test_damaged_signature_is_refused(signature: Signature, message: str) -> None:
    with pytest.raises(InvalidUpdateError, match=message):
        class_means(signature)
