from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clma.encoders.network import NetworkEncoder
from clma.encoders.preprocessing import Preprocessing
from clma.encoders.reference import check_reference, check_row_wise, save_reference
from clma.errors import (
    InvalidConfigError,
    InvalidUpdateError,
    ShapeMismatchError,
    StorageError,
)

SAMPLES = np.random.default_rng(0).normal(size=(4, 3))
WEIGHTS = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)


class Whitened:
    """Scales by its batch: not frozen at all."""

    dim = 3
    fingerprint = "whitened"

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return (batch - batch.mean(axis=0)).astype(np.float32)


def encoder(weights: np.ndarray = WEIGHTS, mean: float = 0.0, name: str = "e") -> NetworkEncoder:
    return NetworkEncoder(
        lambda x: x @ weights, Preprocessing((mean,)), (len(weights),), fingerprint=name
    )


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.safetensors"
    save_reference(encoder(), SAMPLES, path)
    return path


def test_encoder_agrees_with_its_own_reference(reference: Path) -> None:
    check_reference(encoder(), reference, tolerance=1e-6)


def test_another_encoder_of_the_same_embeddings_agrees(reference: Path) -> None:
    check_reference(encoder(name="export"), reference)


@pytest.mark.parametrize("factor", [1.002, 0.998])
def test_departure_beyond_the_tolerance_is_refused(reference: Path, factor: float) -> None:
    with pytest.raises(InvalidConfigError, match=r"departs by 0\.002 .+ wanted at most 0\.001"):
        check_reference(encoder(WEIGHTS * np.float32(factor)), reference)


def test_departure_within_the_tolerance_is_not(reference: Path) -> None:
    check_reference(encoder(WEIGHTS * np.float32(1.0005)), reference)


def test_one_wrong_sample_is_enough_and_named(tmp_path: Path) -> None:
    path = tmp_path / "reference.safetensors"
    embeddings = encoder()(SAMPLES)
    embeddings[2, 1] += 0.1
    save_file({"inputs": SAMPLES, "embeddings": embeddings}, path)

    with pytest.raises(InvalidConfigError, match=r"embedding of sample 2 .+ reference of unknown"):
        check_reference(encoder(), path)


def test_other_preprocessing_is_refused_and_who_made_it_named(reference: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"encoder other, reference of e\)"):
        check_reference(encoder(mean=0.5, name="other"), reference)


def test_embeddings_of_another_length_are_refused(reference: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"shape \(4, 5\), the encoder gives \(4, 2\)"):
        check_reference(encoder(WEIGHTS[:, :2]), reference)


def test_samples_that_the_encoder_does_not_take_are_refused(reference: Path) -> None:
    with pytest.raises(ShapeMismatchError, match=r"wanted \(n, 2\)"):
        check_reference(encoder(WEIGHTS[:2]), reference)


@pytest.mark.parametrize("content", [b"", b"\x08" + bytes(40), b"{}" * 30])
def test_file_that_is_no_reference_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "reference.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidConfigError, match=r"reference .+reference\.safetensors"):
        check_reference(encoder(), path)


@pytest.mark.parametrize("names", [("inputs", "x"), ("x", "embeddings")])
def test_file_of_other_tensors_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "reference.safetensors"
    save_file({name: np.ones((1, 3), np.float32) for name in names}, path)
    with pytest.raises(InvalidConfigError, match="reference"):
        check_reference(encoder(), path)


def test_reference_of_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "reference.safetensors"
    save_file({"inputs": np.ones((0, 3)), "embeddings": np.ones((0, 5))}, path)
    with pytest.raises(InvalidConfigError, match=r"embeddings \(0, 5\)"):
        check_reference(encoder(), path)
    with pytest.raises(ShapeMismatchError, match="0 samples"):
        save_reference(encoder(), SAMPLES[:0], path)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="No such file"):
        check_reference(encoder(), tmp_path / "none")


def test_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        save_reference(encoder(), SAMPLES, tmp_path / "nowhere" / "reference")


def test_encoder_that_looks_at_the_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="depends on the samples beside it"):
        check_row_wise(Whitened(), SAMPLES)
    with pytest.raises(InvalidConfigError, match="depends on the samples beside it"):
        save_reference(Whitened(), SAMPLES, tmp_path / "reference")


def test_encoder_that_throws_dice_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidConfigError, match="or on chance"):
        NetworkEncoder(
            lambda x: x * rng.integers(2, size=x.shape),
            Preprocessing(),
            (50,),
            fingerprint="dice",
        )


def test_network_that_gives_no_numbers_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidConfigError, match="tried on two samples: embedding 0"):
        NetworkEncoder(lambda x: x * np.nan, Preprocessing(), (3,), fingerprint="nan")


@pytest.mark.parametrize("shape", [(2,), (2, 3, 4), (1, 3), (2, 3, 4, 4)])
def test_network_that_gives_no_row_a_sample_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfigError, match=r"the network gives shape .+ for 2 samples"):
        NetworkEncoder(lambda _: np.ones(shape), Preprocessing(), (3,), fingerprint="shape")


def test_sample_that_is_not_finite_is_refused_by_its_row() -> None:
    with pytest.raises(InvalidUpdateError, match="sample 1"):
        encoder()(np.array([[0.0, 0, 0], [0, np.nan, 0]]))


def test_no_samples_have_no_embeddings() -> None:
    assert encoder()(np.ones((0, 3))).shape == (0, 5)
