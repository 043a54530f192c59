from __future__ import annotations

from pathlib import Path

import pytest

from clma.client.reporter import DriftReporter
from clma.config import DriftConfig
from clma.drift import LossThresholdDetector
from clma.errors import DamagedStoreError, InvalidUpdateError


def test_memory_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "detector.json"
    DriftReporter(DriftConfig(), path).observe([0.5], round_num=1)

    assert DriftReporter(DriftConfig(), path).observe([5.0], round_num=2).drift_detected


def test_same_round_twice_is_one_look(tmp_path: Path) -> None:
    reporter = DriftReporter(DriftConfig(), tmp_path / "detector.json")
    reporter.observe([0.5], round_num=1)
    first = reporter.observe([5.0], round_num=2)

    assert reporter.observe([5.0], round_num=2) == first


def test_good_origin_model_sends_the_client_home() -> None:
    reporter = DriftReporter(DriftConfig())
    reporter.observe([0.5], round_num=1)
    reporter.observe([0.9], round_num=2)
    reporter.observe([0.6], round_num=3)

    assert not reporter.origin_still_bad([0.55])
    assert reporter.origin_still_bad([3.0])


def test_without_a_flag_the_origin_counts_as_bad() -> None:
    assert DriftReporter(DriftConfig()).origin_still_bad([0.1])


def test_damaged_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "detector.json"
    path.write_text("{}")
    with pytest.raises(DamagedStoreError, match=r"detector\.json: not a detector state"):
        DriftReporter(DriftConfig(), path)


def test_no_sample_is_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="at least one fresh sample"):
        DriftReporter(DriftConfig()).observe([], round_num=1)


def test_memory_can_be_kept_elsewhere() -> None:
    first = DriftReporter(DriftConfig())
    first.observe([0.5], round_num=1)

    second = DriftReporter(DriftConfig(), memory=first.memory)

    assert second.round_num == 1
    assert second.observe([5.0], round_num=2).drift_detected


@pytest.mark.parametrize("memory", ["", "{}", "[1]", '{"round": "x"}'])
def test_memory_that_is_none_is_named(memory: str) -> None:
    with pytest.raises(DamagedStoreError, match="memory: not a detector state"):
        DriftReporter(DriftConfig(), memory=memory)


def test_a_detector_of_ones_own_is_used() -> None:
    reporter = DriftReporter(LossThresholdDetector(gamma=100.0))
    reporter.observe([0.5], round_num=1)

    assert not reporter.observe([5.0], round_num=2).drift_detected
