from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clma.encoders.preprocessing import Preprocessing
from clma.errors import InvalidConfigError, InvalidUpdateError

IMAGES = np.random.default_rng(0).uniform(size=(4, 3, 2, 5))
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def test_every_channel_has_its_own_mean_and_deviation() -> None:
    prepared = Preprocessing(MEAN, STD, "NCHW").prepare(IMAGES)
    for channel in range(3):
        wanted = (IMAGES[:, channel] - MEAN[channel]) / STD[channel]
        assert prepared[:, channel] == pytest.approx(wanted, abs=1e-6)


def test_network_that_wants_channels_last_gets_them_last() -> None:
    first = Preprocessing(MEAN, STD, "NCHW").prepare(IMAGES)
    last = Preprocessing(MEAN, STD, "NHWC").prepare(IMAGES)
    assert (last == first.transpose(0, 2, 3, 1)).all()


def test_square_images_of_as_many_pixels_as_channels_are_normalised_by_channel() -> None:
    prepared = Preprocessing((0.0, 1.0, 2.0), (1.0,), "NCHW").prepare(np.zeros((1, 3, 3, 3)))
    assert prepared[0, :, 1, 2].tolist() == [0, -1, -2]


def test_default_changes_nothing() -> None:
    assert (Preprocessing().prepare(IMAGES) == IMAGES.astype(np.float32)).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "as-is"])
def test_prepared_samples_are_their_own_memory_in_order(layout: Any) -> None:
    samples = IMAGES.astype(np.float32)
    prepared = Preprocessing(layout=layout).prepare(samples)
    assert prepared.flags.c_contiguous
    assert not np.shares_memory(prepared, samples)


@pytest.mark.parametrize(("value", "row"), [(1.01, 2), (-0.01, 1), (255.0, 3)])
def test_value_out_of_range_is_refused_by_its_row(value: float, row: int) -> None:
    samples = IMAGES.copy()
    samples[row, 0, 0, 0] = value
    with pytest.raises(InvalidUpdateError, match=f"sample {row} has values of .+ wanted 0 to 1"):
        Preprocessing(value_range=(0.0, 1.0)).prepare(samples)


def test_bounds_are_within_the_range() -> None:
    assert Preprocessing(value_range=(0.0, 1.0)).prepare(np.array([[0.0, 1.0]])).tolist() == [
        [0, 1]
    ]


def test_value_that_float32_cannot_hold_is_refused_by_its_row() -> None:
    with pytest.raises(InvalidUpdateError, match="prepared sample 1"):
        Preprocessing().prepare(np.array([[0.0], [1e300]]))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mean": (0.1, 0.2), "std": STD, "layout": "NCHW"}, "2 means, 3 deviations"),
        ({"mean": ()}, "0 means"),
        ({"mean": MEAN}, "'as-is' has no channels"),
        ({"mean": (np.nan,)}, "wanted finite"),
        ({"std": (0.0,)}, "above 0"),
        ({"std": (-1.0,)}, "above 0"),
        ({"layout": "CHW"}, "layout 'CHW', wanted one of"),
        ({"value_range": (1.0, 1.0)}, "value range"),
        ({"value_range": (0.0, np.nan)}, "value range"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        Preprocessing(**settings)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4, 4), (4, 4, 3), (3, 0, 4)])
def test_samples_that_cannot_be_prepared_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfigError, match="sample shape"):
        Preprocessing(MEAN, STD, "NCHW").check_shape(shape)


@pytest.mark.parametrize("layout", ["NCHW", "as-is"])
def test_samples_made_up_can_be_prepared(layout: Any) -> None:
    preprocessing = Preprocessing(layout=layout, value_range=(0.2, 0.4))
    assert preprocessing.prepare(preprocessing.made_up((2, 3, 4, 4))).std() > 0
