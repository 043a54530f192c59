from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.encoders.contract import encode
from clma.encoders.sensor_stats import STATISTICS, SensorStats, read_ranges
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError

LOW, HIGH = (0.0, -50.0, 3.0), (10.0, 150.0, 4.0)
STATS = SensorStats(LOW, HIGH)


def windows(n: int, n_steps: int = 64) -> NDArray[np.float64]:
    """Readings somewhat beyond their ranges, too."""
    low, high = np.array(LOW)[:, None], np.array(HIGH)[:, None]
    return low + (high - low) * np.random.default_rng(1).normal(0.5, 0.3, (n, 3, n_steps))


def described(*readings: float) -> dict[str, float]:
    """Return the statistics of a window of one channel, of range 0 to 1, by name."""
    embedding = SensorStats((0.0,), (1.0,))(np.array([[readings]]))[0]
    return dict(zip(STATISTICS, embedding.tolist(), strict=True))


def test_statistics_are_what_their_names_say() -> None:
    got = described(0.0, 1.0, 1.0, 2.0)
    wanted = {"mean": 1, "std": 0.5**0.5, "min": 0, "max": 2, "drift": 1}
    wanted |= {"difference_std": 2**0.5 / 3, "stuck": 1 / 3, "lag1": 0}
    assert got == pytest.approx(wanted)


def test_middle_step_is_in_neither_half() -> None:
    assert described(0.0, 9.0, 1.0)["drift"] == pytest.approx(1.0)


def test_neighbours_on_one_side_of_the_mean_have_a_positive_product() -> None:
    assert described(0.0, 0.0, 2.0, 2.0)["lag1"] == pytest.approx(1 / 3)
    assert described(0.0, 2.0, 0.0, 2.0)["lag1"] == pytest.approx(-1.0)


def test_stuck_sensor_varies_in_nothing() -> None:
    got = described(*[0.3] * 8)
    assert got["stuck"] == 1
    assert [got[name] for name in ("std", "drift", "difference_std", "lag1")] == pytest.approx(
        [0] * 4, abs=1e-12
    )


def test_unit_of_a_channel_does_not_count() -> None:
    """Degrees Fahrenheit with their range are degrees Celsius with theirs."""
    celsius = windows(4)[:, 1:2]

    in_celsius = SensorStats((-50.0,), (150.0,))(celsius)
    in_fahrenheit = SensorStats((-58.0,), (302.0,))(celsius * 1.8 + 32)

    assert in_fahrenheit == pytest.approx(in_celsius, abs=1e-6)


def test_offset_of_a_client_stays_visible() -> None:
    offset = (STATS(windows(5) + 1.0) - STATS(windows(5))).reshape(5, 3, 8)
    assert offset[:, :, 0] == pytest.approx(np.tile([0.1, 0.005, 1.0], (5, 1)), abs=1e-5)


def test_embedding_does_not_depend_on_its_batch() -> None:
    samples = windows(20)
    assert (encode(STATS, samples) == encode(STATS, samples, n_at_once=1)).all()


def test_embedding_does_not_depend_on_the_memory_order() -> None:
    samples = windows(20)
    assert (STATS(samples) == STATS(np.asfortranarray(samples))).all()


def test_samples_are_not_modified() -> None:
    samples = windows(3)
    STATS(samples)
    assert (samples == windows(3)).all()


def test_there_are_eight_numbers_a_channel() -> None:
    assert STATS.dim == STATS(windows(2)).shape[1] == 24


@pytest.mark.parametrize("shape", [(2, 2, 64), (2, 4, 64), (3, 64), (2, 3)])
def test_other_channels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatchError, match=r"wanted \(n, 3, any\)"):
        STATS(np.ones(shape))


@pytest.mark.parametrize("n_steps", [0, 1])
def test_window_without_a_difference_is_refused(n_steps: int) -> None:
    with pytest.raises(ShapeMismatchError, match=f"windows have {n_steps} steps"):
        STATS(np.ones((2, 3, n_steps)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_reading_that_is_not_finite_is_refused_by_its_window(value: float) -> None:
    samples = windows(4)
    samples[2, 0, 5] = value
    with pytest.raises(InvalidUpdateError, match="sample 2"):
        STATS(samples)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((1.0,), (1.0,)),
        ((2.0,), (1.0,)),
        ((np.nan,), (1.0,)),
        ((0.0,), (np.inf,)),
        ((-1.7e308,), (1.7e308,)),
    ],
)
def test_empty_range_is_refused_by_its_channel(low: tuple[float], high: tuple[float]) -> None:
    with pytest.raises(InvalidConfigError, match=r"channel 1: range .+ wanted low < high"):
        SensorStats((0.0, *low), (1.0, *high))


@pytest.mark.parametrize(("low", "high"), [((), ()), ((0.0,), ()), ((0.0,), (1.0, 2.0))])
def test_ranges_that_do_not_pair_are_refused(
    low: tuple[float, ...], high: tuple[float, ...]
) -> None:
    with pytest.raises(InvalidConfigError, match="wanted as many"):
        SensorStats(low, high)


def test_every_bound_is_part_of_the_fingerprint() -> None:
    others = [SensorStats((*LOW[:2], 2.5), HIGH), SensorStats(LOW, (11.0, *HIGH[1:]))]
    assert len({s.fingerprint for s in [STATS, *others]}) == 3


def test_whole_numbers_are_the_same_ranges() -> None:
    assert SensorStats((0,), (10,)).fingerprint == SensorStats((0.0,), (10.0,)).fingerprint


def test_ranges_of_a_file_are_those_of_the_code(tmp_path: Path) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text(
        '[[channel]]\nname = "level"\nunit = "m"\nlow = 0\nhigh = 10.0\n'
        "[[channel]]\nlow = -50\nhigh = 150\n[[channel]]\nlow = 3\nhigh = 4\n"
    )
    assert read_ranges(path) == STATS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("channel = ", "Invalid value"),
        ("", r"wanted a \[\[channel\]\]"),
        ("channel = [3]", "channel 0 has no number 'low'"),
        ("[[channel]]\nlow = 1", "channel 0 has no number 'high'"),
        ("[[channel]]\nlow = true\nhigh = 2", "channel 0 has no number 'low'"),
        ("[[channel]]\nlow = 3\nhigh = 2", "channel 0: range 3.0 to 2.0"),
        ("channel = []", "0 low, 0 high"),
    ],
)
def test_file_without_ranges_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text(text)
    with pytest.raises(InvalidConfigError, match=why):
        read_ranges(path)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="No such file"):
        read_ranges(tmp_path / "ranges.toml")
