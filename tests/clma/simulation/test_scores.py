from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidConfigError, ShapeMismatchError
from clma.simulation import load_fleet, load_scenario
from clma.simulation.scores import (
    ClientScore,
    adjusted_rand_index,
    macro_auc_roc,
    macro_f1,
    score_fleet,
    softmax,
)

FLEET = load_fleet(None, "plant", 0)
ROUNDS = range(1, 11)
TRUTH = {c: FLEET.concept(c, 10) for c in FLEET.client_ids}


def _rows(f1=lambda c, r: 1.0, flagged=FLEET.drifts) -> list[ClientScore]:
    return [
        ClientScore(r, c, f1(c, r), bool(flagged(c, r))) for r in ROUNDS for c in FLEET.client_ids
    ]


def test_macro_f1_by_hand() -> None:
    labels, predictions = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0])

    assert macro_f1(labels, predictions) == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_class_that_is_only_predicted_is_not_averaged() -> None:
    assert macro_f1(np.array([0, 0]), np.array([0, 3])) == pytest.approx(2 / 3)


def test_macro_f1_of_nothing_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="wanted as many, not 0"):
        macro_f1(np.zeros(0, np.int64), np.zeros(0, np.int64))


def test_area_by_hand() -> None:
    labels = np.array([0, 0, 1, 1])
    scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9]])

    assert macro_auc_roc(labels, scores) == pytest.approx(3 / 4)


def test_area_is_one_for_the_right_order_and_half_for_none() -> None:
    labels = np.arange(30) % 3

    assert macro_auc_roc(labels, np.eye(3)[labels]) == 1.0
    assert macro_auc_roc(labels, np.zeros((30, 3))) == 0.5


def test_area_leaves_out_classes_that_are_not_there() -> None:
    labels = np.array([0, 2, 2])
    scores = np.array([[0.6, 0.1, 0.3], [0.1, 0.8, 0.1], [0.0, 0.6, 0.4]])

    assert macro_auc_roc(labels, scores) == pytest.approx((1.0 + 0.5) / 2)


@pytest.mark.parametrize(
    ("labels", "scores"), [([1, 1], [[0, 1], [0, 1]]), ([0, 1], [[0, 1], [np.nan, 1]])]
)
def test_area_of_one_class_or_of_no_number_is_not_counted(labels: list, scores: list) -> None:
    assert macro_auc_roc(np.array(labels), np.array(scores, dtype=np.float64)) is None


def test_area_of_nothing_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="wanted as many rows, not 0"):
        macro_auc_roc(np.zeros(2, np.int64), np.zeros((3, 2)))


def test_probabilities_add_up_and_do_not_overflow() -> None:
    probabilities = softmax(np.array([[1000.0, 1000.0], [0.0, np.log(3.0)]], np.float32))

    np.testing.assert_allclose(probabilities, [[0.5, 0.5], [0.25, 0.75]], rtol=1e-6)


def test_accuracy_and_area_are_means_over_all_clients_of_the_last_round() -> None:
    rows = [
        ClientScore(r, c, 1.0, None, 0.5 * r, a)
        for r in (1, 2)
        for c, a in (("plant-01", 0.6), ("plant-09", 0.8))
    ]

    scores = score_fleet(FLEET, rows, {})

    assert scores.final_accuracy == 1.0
    assert scores.final_auc_roc == pytest.approx(0.7)


def test_rand_index_ignores_the_names_of_the_groups() -> None:
    assert adjusted_rand_index(["a", "a", "b"], ["2", "2", "1"]) == 1.0


def test_perfect_run_scores_one_and_no_false_alarm() -> None:
    scores = score_fleet(FLEET, _rows(), TRUTH)

    assert scores.drifted_f1 == scores.stationary_f1 == scores.final_drifted_f1 == 1.0
    assert (scores.ari, scores.n_cohorts) == (1.0, 3)
    assert (scores.detector_recall, scores.false_alarm_rate) == (1.0, 0.0)


def test_drifted_and_stationary_clients_are_told_apart() -> None:
    scores = score_fleet(FLEET, _rows(lambda c, _: float(c > "plant-02")), TRUTH)

    assert (scores.stationary_f1, scores.drifted_f1) == (0.0, 1.0)


def test_rounds_before_the_fourth_do_not_count() -> None:
    scores = score_fleet(FLEET, _rows(lambda _, r: float(r >= 4)), TRUTH)

    assert scores.drifted_f1 == 1.0


def test_final_scores_are_those_of_the_last_round() -> None:
    scores = score_fleet(FLEET, _rows(lambda _, r: float(r == 10)), TRUTH)

    assert scores.final_stationary_f1 == 1.0
    assert scores.stationary_f1 == pytest.approx(1 / 7)


def test_flag_everywhere_is_full_recall_and_all_false_alarms() -> None:
    scores = score_fleet(FLEET, _rows(flagged=lambda *_: True), TRUTH)

    assert (scores.detector_recall, scores.false_alarm_rate) == (1.0, 1.0)


def test_false_alarms_are_counted_from_round_two_on() -> None:
    scores = score_fleet(FLEET, _rows(flagged=lambda _, r: r == 1), TRUTH)

    assert scores.false_alarm_rate == 0.0


def test_order_of_the_rows_does_not_matter() -> None:
    assert score_fleet(FLEET, _rows()[::-1], TRUTH) == score_fleet(FLEET, _rows(), TRUTH)


def test_what_was_not_measured_is_none() -> None:
    rows = [ClientScore(1, "plant-01", None, None)]

    scores = score_fleet(FLEET, rows, {})

    assert scores.stationary_f1 is scores.ari is scores.detector_recall is None
    assert scores.n_cohorts == 0


def test_partition_is_not_judged_where_no_groups_are_true() -> None:
    fleet = load_scenario("plant/dirichlet-0.5", 0)

    assert score_fleet(fleet, _rows(), TRUTH).ari is None


def test_groups_that_know_other_classes_are_the_truth_though_nobody_drifts() -> None:
    fleet = load_scenario("plant/class-groups", 0)
    groups = {c: str(n) for n, c in enumerate(fleet.client_ids)}

    found = {c: fleet.concept(c, 1)[-1] for c in groups}
    assert score_fleet(fleet, _rows(), found).ari == 1.0
    assert score_fleet(fleet, _rows(), groups).ari == 0.0


def test_fleet_without_drift_has_no_recall() -> None:
    fleet = load_fleet(None, "plant-stationary", 0)

    scores = score_fleet(fleet, _rows(flagged=lambda *_: False), TRUTH)

    assert scores.detector_recall is scores.drifted_f1 is None


def test_client_and_round_come_once() -> None:
    with pytest.raises(InvalidConfigError, match="wanted one each"):
        score_fleet(FLEET, _rows() + _rows()[:1], TRUTH)
