from __future__ import annotations

import json
import signal
import subprocess
import sys
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


NIGHTS_WITHOUT_END = """
import sys
from pathlib import Path
from clma.client.reporter import DriftReporter
from clma.config import DriftConfig
reporter = DriftReporter(DriftConfig(), Path(sys.argv[1]))
for night in range(1, 10**6):
    reporter.observe([0.5], round_num=night)
    print(night, flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_memory_of_what_was_observed(tmp_path: Path) -> None:
    path = tmp_path / "detector.json"
    for n_nights in (1, 2, 7):
        words = [sys.executable, "-c", NIGHTS_WITHOUT_END, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as plant:
            said = [next(iter(plant.stdout or ())) for _ in range(n_nights)]
            plant.send_signal(signal.SIGKILL)

        assert json.loads(path.read_text())["round"] >= int(said[-1])
        assert DriftReporter(DriftConfig(), path).observe([5.0], round_num=10**6).drift_detected


def test_after_the_training_the_same_memory_takes_the_trained_models_losses(
    tmp_path: Path,
) -> None:
    """Algorithm 2 as listed: the reporter is told other losses, nothing else differs."""
    config = DriftConfig(loss_point="after")
    path = tmp_path / "detector.json"
    DriftReporter(config, path).observe([0.1, 0.2], round_num=1)

    assert DriftReporter(config, path).observe([0.6, 0.9], round_num=2).drift_detected


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
