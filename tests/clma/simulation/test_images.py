from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidConfigError
from clma.simulation.images import CONDITIONS, STYLES, look

GREY = np.random.default_rng(0).uniform(size=(3, 8, 8)).astype(np.float32)
COLOUR = np.random.default_rng(1).uniform(size=(3, 32, 32, 3)).astype(np.float32)


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("condition", [*CONDITIONS, *STYLES])
def test_conditions_keep_shape_dtype_and_range(images: np.ndarray, condition: str) -> None:
    seen = look(images, condition)

    assert (seen.shape, seen.dtype) == (images.shape, np.float32)
    assert seen.min() >= 0.0
    assert seen.max() <= 1.0
    assert not np.array_equal(seen, images)


def test_base_is_as_it_is() -> None:
    np.testing.assert_array_equal(look(GREY, "base"), GREY)


def test_grain_is_the_images_own_whatever_it_comes_with() -> None:
    seen = look(GREY, "grainy")

    np.testing.assert_array_equal(look(GREY[1:2], "grainy"), seen[1:2])
    assert len({(image - 0.5 * own).tobytes() for image, own in zip(seen, GREY, strict=True)}) == 3


def test_grainy_images_have_half_the_contrast_and_noise() -> None:
    ramp = np.linspace(0.7, 0.701, 50, dtype=np.float32)
    bright = np.tile(ramp[:, None, None], (1, 8, 8))

    seen = look(bright, "grainy")

    assert seen.mean() == pytest.approx(0.6, abs=0.01)
    assert seen.std() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(("condition", "times"), [("invert", 2), ("rotate-90", 4)])
def test_turns_come_back(condition: str, times: int) -> None:
    seen = COLOUR
    for _ in range(times):
        seen = look(seen, condition)

    np.testing.assert_allclose(seen, COLOUR, atol=1e-6)


def test_channels_stay_channels_when_an_image_turns() -> None:
    red = COLOUR * np.float32([1, 0, 0])

    assert not look(red, "rotate-90")[..., 1:].any()


def test_unknown_condition_names_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match="'fog' is unknown, wanted base or one of invert"):
        look(GREY, "fog")
