from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.encoders.contract import check_samples, encode, fingerprint_of
from clma.encoders.flatten import Flatten
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError

RNG = np.random.default_rng(0)


class Odd:
    """An encoder of two numbers that keeps how many samples it saw at a time."""

    dim = 2
    fingerprint = "odd"

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.seen: list[int] = []

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        self.seen.append(len(batch))
        return batch[:, :2].astype(np.float32) if self.answer is None else self.answer


@pytest.mark.parametrize("n_at_once", [1, 2, 7, 256])
def test_pieces_give_what_the_whole_gives(n_at_once: int) -> None:
    samples = RNG.normal(size=(7, 3))
    assert (encode(Odd(), samples, n_at_once=n_at_once) == samples[:, :2].astype("f4")).all()


def test_encoder_never_sees_more_than_it_should() -> None:
    encoder = Odd()
    encode(encoder, np.ones((7, 3)), n_at_once=3)
    assert encoder.seen == [3, 3, 1]


def test_no_samples_have_no_embeddings() -> None:
    assert encode(Odd(), np.ones((0, 3))).shape == (0, 2)


def test_samples_are_not_modified() -> None:
    samples = RNG.normal(size=(7, 3))
    before = samples.copy()

    encode(Odd(), samples)

    assert (samples == before).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_sample_that_is_not_finite_is_refused_by_its_row(value: float) -> None:
    samples = np.ones((7, 3))
    samples[5, 2] = value
    with pytest.raises(InvalidUpdateError, match="sample 5 has values that are NaN or infinite"):
        encode(Odd(), samples, n_at_once=2)


def test_embedding_that_is_not_finite_is_refused_by_its_row() -> None:
    answer = np.array([[1.0, 1.0], [1.0, np.nan]])
    with pytest.raises(InvalidUpdateError, match="embedding 1 has values"):
        encode(Odd(answer), np.ones((2, 3)))


def test_embedding_that_float32_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="embedding 0 has values"):
        encode(Flatten((1,)), np.full((1, 1), 1e300))


@pytest.mark.parametrize("shape", [(2,), (2, 3), (3, 2), (2, 1, 2)])
def test_embeddings_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatchError, match=r"2 samples have shape .+, wanted \(2, 2\)"):
        encode(Odd(np.zeros(shape)), np.ones((2, 3)))


@pytest.mark.parametrize("samples", [np.array([["a"]]), np.array([[None]]), np.array([[1j]])])
def test_samples_that_are_no_real_numbers_are_refused(samples: NDArray[Any]) -> None:
    with pytest.raises(InvalidUpdateError, match=r"samples have dtype .+, wanted real numbers"):
        encode(Odd(), samples)


def test_a_number_is_no_samples() -> None:
    with pytest.raises(ShapeMismatchError, match="no axis"):
        encode(Odd(), np.array(1.0))


def test_pieces_of_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="n_at_once is 0"):
        encode(Odd(), np.ones((2, 3)), n_at_once=0)


@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 4), (5, 2, 3, 1)])
def test_other_shapes_are_refused_by_what_was_wanted(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatchError, match=r"samples have shape \(5.+wanted \(n, 3, any\)"):
        check_samples(np.ones(shape), (3, None))


@pytest.mark.parametrize(
    "other",
    [
        fingerprint_of("b", 1, {"x": 1.0}, [b"w"]),
        fingerprint_of("a", 2, {"x": 1.0}, [b"w"]),
        fingerprint_of("a", 1, {"x": 1.5}, [b"w"]),
        fingerprint_of("a", 1, {"y": 1.0}, [b"w"]),
        fingerprint_of("a", 1, {"x": 1.0}, [b"v"]),
        fingerprint_of("a", 1, {"x": 1.0}),
    ],
)
def test_all_that_an_encoder_is_counts_for_its_fingerprint(other: str) -> None:
    assert fingerprint_of("a", 1, {"x": 1.0}, [b"w"]) != other


def test_order_of_settings_does_not_count() -> None:
    assert fingerprint_of("a", 1, {"x": 1, "y": 2}) == fingerprint_of("a", 1, {"y": 2, "x": 1})


def test_encoders_without_a_network_load_no_runtime() -> None:
    code = (
        "import sys, clma.encoders.flatten, clma.encoders.sensor_stats;"
        "sys.exit(bool({'torch', 'onnxruntime', 'safetensors'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
