from __future__ import annotations

import pytest

from clma.client.monitor import InferenceDriftMonitor
from clma.drift import AnchoredDetector, LossThresholdDetector
from clma.errors import InvalidConfigError


def requests(monitor: InferenceDriftMonitor, values: list[float]) -> list[int]:
    """Return the batches at which a round is asked for."""
    return [i for i, v in enumerate(values) if monitor.observe(v).round_requested]


def test_one_bad_batch_asks_for_a_round() -> None:
    assert requests(InferenceDriftMonitor(LossThresholdDetector()), [0.3, 0.3, 0.9, 0.9]) == [2]


def test_patience_forgives_single_batches() -> None:
    monitor = InferenceDriftMonitor(AnchoredDetector(), patience=2)
    assert requests(monitor, [0.3, 0.3, 0.9, 0.3, 0.9, 0.9]) == [5]


def test_cooldown_asks_once_for_one_drift() -> None:
    monitor = InferenceDriftMonitor(LossThresholdDetector(), cooldown=3)
    assert requests(monitor, [0.3, 0.9, 1.5, 2.1, 2.7, 3.3]) == [1, 5]


def test_reset_forgets_the_old_model() -> None:
    monitor = InferenceDriftMonitor(LossThresholdDetector())
    monitor.observe(0.1)
    monitor.reset()
    assert not monitor.observe(9.0).round_requested


def test_measure_is_named_in_every_reading() -> None:
    monitor = InferenceDriftMonitor(LossThresholdDetector(), measure="mean_entropy")
    assert monitor.observe(0.2).measure == "mean_entropy"


def test_patience_of_zero_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="patience is 0"):
        InferenceDriftMonitor(LossThresholdDetector(), patience=0)
