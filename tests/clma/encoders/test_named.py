from __future__ import annotations

from pathlib import Path

import pytest

from clma.encoders.flatten import Flatten
from clma.encoders.named import named_encoder
from clma.encoders.sensor_stats import SensorStats
from clma.errors import InvalidConfigError


def test_flatten_fits_the_samples() -> None:
    assert named_encoder("flatten", sample_shape=(3, 4)).dim == 12


def test_ranges_are_read_from_their_file(tmp_path: Path) -> None:
    (tmp_path / "ranges.toml").write_text("[[channel]]\nlow = 0\nhigh = 2\n")

    made = named_encoder(f"sensor-stats:{tmp_path / 'ranges.toml'}", sample_shape=(1, 9))

    assert made.fingerprint == SensorStats((0,), (2,)).fingerprint


def test_function_of_ones_own_makes_any_encoder() -> None:
    made = named_encoder(f"{__name__}:own_encoder", sample_shape=(5,))

    assert made.fingerprint == own_encoder().fingerprint


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vit", "wanted flatten"),
        ("sensor-stats:none.toml", "none.toml"),
        ("no.such.module:f", "no.such.module"),
        ("builtins:dict", "made a dict, wanted an encoder"),
    ],
)
def test_what_is_no_encoder_is_refused(name: str, says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        named_encoder(name, sample_shape=(5,))


def own_encoder() -> Flatten:
    return Flatten((5,))
