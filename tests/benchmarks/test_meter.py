"""What the meter counts as memory of a stretch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.meter import Meter

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peaks can be restarted on Linux only"
)

N_BYTES = 128 * 2**20


def test_memory_that_was_given_back_within_the_stretch_counts() -> None:
    with Meter() as meter:
        np.ones(N_BYTES // 8)
    assert 0.9 * N_BYTES < meter.reading.over_bytes < 1.5 * N_BYTES


def test_a_peak_before_the_stretch_does_not_count() -> None:
    np.ones(N_BYTES // 8)
    with Meter() as meter:
        pass
    assert meter.reading.over_bytes < N_BYTES // 4


def test_memory_that_was_held_before_is_in_the_peak_only() -> None:
    held = np.ones(N_BYTES // 8)
    with Meter() as meter:
        held += 1
    assert meter.reading.over_bytes < N_BYTES // 4
    assert meter.reading.peak_bytes > N_BYTES
