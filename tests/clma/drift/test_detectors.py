from __future__ import annotations

import math

import pytest

from clma.drift import (
    AnchoredDetector,
    Detector,
    DetectorState,
    LossThresholdDetector,
    QuietLevelDetector,
)
from clma.errors import InvalidConfigError, InvalidUpdateError

STEP = [0.5, 0.4, 0.3, 0.35, 0.9]
CREEP = [0.5, 0.59, 0.68, 0.77]


def flags(detector: Detector, losses: list[float], errors: list[float] | None = None) -> list[int]:
    """Return the positions at which a detector flags."""
    state, found = DetectorState(), []
    for index, loss in enumerate(losses):
        error = 0.0 if errors is None else errors[index]
        state, reading = detector.observe(state, loss, standard_error=error)
        if reading.drift_detected:
            found.append(index)
    return found


def test_threshold_flags_the_step_only() -> None:
    assert flags(LossThresholdDetector(gamma=0.1), STEP) == [4]


def test_threshold_never_sees_a_slow_creep() -> None:
    assert flags(LossThresholdDetector(gamma=0.1), CREEP) == []


def test_threshold_depends_on_the_unit_of_the_loss() -> None:
    assert flags(LossThresholdDetector(gamma=0.1), [10 * x for x in STEP]) == [3, 4]


@pytest.mark.parametrize(
    "detector", [LossThresholdDetector(), AnchoredDetector(), QuietLevelDetector()]
)
@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_non_finite_loss_is_an_error_and_no_flag(detector: Detector, loss: float) -> None:
    with pytest.raises(InvalidUpdateError, match="wanted a finite number"):
        detector.observe(DetectorState(), loss)


@pytest.mark.parametrize(
    "detector", [LossThresholdDetector(), AnchoredDetector(), QuietLevelDetector()]
)
def test_first_loss_never_flags(detector: Detector) -> None:
    assert flags(detector, [1e6]) == []


def test_patience_finds_a_step_that_stays() -> None:
    """The last quiet loss is what a streak is compared with."""
    assert flags(LossThresholdDetector(gamma=0.1, patience=2), [0.5, 5.0, 5.0, 5.0]) == [2]


def test_patience_forgives_a_single_peak() -> None:
    assert flags(LossThresholdDetector(gamma=0.1, patience=2), [0.5, 5.0, 0.5, 5.0, 0.5]) == []


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_anchored_flags_do_not_depend_on_the_unit(scale: float) -> None:
    assert flags(AnchoredDetector(), [scale * x for x in STEP]) == [4]


def test_anchored_thresholds_are_the_hand_computed_ones() -> None:
    detector, state, thresholds = AnchoredDetector(), DetectorState(), []
    for loss in STEP:
        state, reading = detector.observe(state, loss)
        thresholds.append(reading.threshold)

    assert thresholds[0] is None
    assert thresholds[1:] == pytest.approx([0.125, 0.1, 0.075, 0.0875])


def test_standard_error_excuses_a_noisy_rise() -> None:
    assert flags(AnchoredDetector(), [0.1, 0.3]) == [1]
    assert flags(AnchoredDetector(), [0.1, 0.3], errors=[0.05, 0.05]) == []


def test_standard_errors_of_three_earlier_rounds_count() -> None:
    quiet = [0.0] * 4
    assert flags(AnchoredDetector(), [0.1] * 4 + [0.3], [0.05, *quiet]) == [4]
    assert flags(AnchoredDetector(), [0.1] * 4 + [0.3], [0.0, 0.05, *quiet[1:]]) == []


def test_noise_of_the_old_concept_is_forgotten_after_a_flag() -> None:
    losses, errors = [0.1, 9.0, 0.1, 0.3], [0.01, 0.5, 0.01, 0.01]
    assert flags(AnchoredDetector(), losses, errors) == [1, 3]


def test_creep_option_finds_the_slow_rise() -> None:
    assert flags(AnchoredDetector(creep=True), CREEP) == [3]
    assert flags(AnchoredDetector(creep=False), CREEP) == []


def test_anchor_of_a_late_joiner_can_be_given() -> None:
    state = DetectorState(first_loss=2.0)
    detector = AnchoredDetector(relative_rise=0.0, z_score=0.0)

    state, _ = detector.observe(state, 0.1)
    _, reading = detector.observe(state, 0.15)

    assert reading.threshold == pytest.approx(0.1)


def test_state_survives_json() -> None:
    detector, state = AnchoredDetector(), DetectorState()
    for loss in STEP:
        state, _ = detector.observe(state, loss, standard_error=0.01)
    assert DetectorState.from_json(state.to_json()) == state


def test_zero_allowances_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="every rise would be a drift"):
        AnchoredDetector(anchor_fraction=0, relative_rise=0, z_score=0)
    with pytest.raises(InvalidConfigError, match="gamma is 0"):
        LossThresholdDetector(gamma=0)


def test_a_night_that_was_easy_by_chance_makes_no_drift_of_the_next() -> None:
    lucky = [2.3, 0.5, 0.6, 0.01, 0.5]
    assert flags(AnchoredDetector(), lucky) == [4]
    assert flags(QuietLevelDetector(), lucky) == []


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_quiet_level_flags_do_not_depend_on_the_unit(scale: float) -> None:
    losses, errors = [*STEP, 0.4, 0.42, 3.0], [0.01] * 8
    found = flags(QuietLevelDetector(), [scale * x for x in losses], [scale * x for x in errors])
    assert found == [4, 7]


def test_one_easy_night_is_not_yet_the_level() -> None:
    errors = [0.0] * 6
    assert flags(QuietLevelDetector(), [2.0, 0.01, 0.55], errors) == []
    assert flags(QuietLevelDetector(), [2.0, 0.01, 0.02, 0.01, 0.55], errors) == [4]


def test_loss_of_an_untrained_model_is_no_level() -> None:
    assert flags(QuietLevelDetector(), [2.3, 0.5, 1.5]) == [2]


def test_flagged_loss_is_no_level_of_what_came() -> None:
    assert flags(QuietLevelDetector(), [2.3, 0.5, 6.0, 0.5, 3.0]) == [2, 4]


def test_quiet_losses_before_a_drift_are_remembered_after_it() -> None:
    assert flags(QuietLevelDetector(), [2.3, 0.8, 6.0, 0.01, 0.7]) == [2]


def test_round_after_a_drift_may_still_learn() -> None:
    assert flags(QuietLevelDetector(), [2.3, 0.1, 6.0, 1.5, 1.2, 0.9, 0.3]) == [2]


def test_noise_excuses_no_more_than_its_ceiling() -> None:
    losses, errors = [2.0, 0.1, 1.6], [0.0, 0.0, 5.0]
    assert flags(QuietLevelDetector(noise_ceiling=0.5), losses, errors) == [2]
    assert flags(QuietLevelDetector(noise_ceiling=0.6), losses, errors) == []


@pytest.mark.parametrize(("next_loss", "found"), [(6.0, [2, 3]), (4.7, [2, 3]), (4.6, [2])])
def test_model_that_brings_no_relief_is_flagged_again(next_loss: float, found: list[int]) -> None:
    assert flags(QuietLevelDetector(), [2.3, 0.5, 6.0, next_loss]) == found


def test_relief_is_asked_for_until_it_comes() -> None:
    assert flags(QuietLevelDetector(), [2.3, 0.5, 6.0, 6.0, 6.0, 0.6, 0.6]) == [2, 3, 4]


def test_slow_rise_is_flagged_within_eight_rounds() -> None:
    rise = [2.3, *[0.5] * 3, *[0.5 + 0.09 * step for step in range(1, 9)]]
    found = flags(QuietLevelDetector(), rise)
    assert 3 < min(found) <= 3 + 8
    assert flags(QuietLevelDetector(creep=False), rise) == []


@pytest.mark.parametrize("values", [{"z_score": -1.0}, {"noise_ceiling": -0.1}])
def test_quiet_level_refuses_what_is_out_of_range(values: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError, match="wanted >= 0"):
        QuietLevelDetector(**values)


def test_memory_of_before_the_quiet_level_is_read() -> None:
    stored = DetectorState(first_loss=2.0, losses=(0.5,)).to_json()
    del stored["flagged_loss"]
    assert DetectorState.from_json(stored).losses == (0.5,)
