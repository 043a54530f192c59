from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidConfigError
from clma.simulation.images import CONDITIONS, look

GREY = np.random.default_rng(0).uniform(size=(3, 8, 8)).astype(np.float32)
COLOUR = np.random.default_rng(1).uniform(size=(3, 32, 32, 3)).astype(np.float32)


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_keep_shape_dtype_and_range(images: np.ndarray, condition: str) -> None:
    seen = look(images, condition)

    assert (seen.shape, seen.dtype) == (images.shape, np.float32)
    assert seen.min() >= 0.0
    assert seen.max() <= 1.0
    assert not np.array_equal(seen, images)


def test_base_is_as_it_is() -> None:
    np.testing.assert_array_equal(look(GREY, "base"), GREY)


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
