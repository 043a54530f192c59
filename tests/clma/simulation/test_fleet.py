from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from clma.errors import UnknownClientError
from clma.simulation import load_fleet


def test_answers_do_not_depend_on_the_order_of_the_questions() -> None:
    one, two = load_fleet(None, "plant", 3), load_fleet(None, "plant", 3)
    two.test_windows("plant-04", 9)
    two.training_windows("plant-02", 7)

    for given, wanted in zip(
        two.training_windows("plant-03", 5), one.training_windows("plant-03", 5), strict=True
    ):
        np.testing.assert_array_equal(given, wanted)


def test_every_client_round_and_seed_has_its_own_windows() -> None:
    drawn = [
        load_fleet(None, "plant", seed).training_windows(client, round_num)[0].tobytes()
        for seed, client, round_num in [
            (0, "plant-01", 1),
            (0, "plant-01", 2),
            (0, "plant-02", 1),
            (1, "plant-01", 1),
        ]
    ]

    assert len(set(drawn)) == 4


def test_test_windows_stay_while_the_concept_stays() -> None:
    fleet = load_fleet(None, "plant", 0)

    before, same, after = (fleet.test_windows("plant-03", r)[0] for r in (1, 2, 3))

    np.testing.assert_array_equal(before, same)
    assert not np.array_equal(same, after)


def test_relabelling_holds_for_test_labels_and_leaves_the_windows() -> None:
    fleet = load_fleet(None, "plant-concept", 0)

    (x, y), (x_after, y_after) = (fleet.test_windows("plant-03", r) for r in (2, 3))

    np.testing.assert_array_equal(x, x_after)
    np.testing.assert_array_equal(np.array([0, 2, 1, 3, 4])[y], y_after)


def test_relabelling_holds_for_training_labels() -> None:
    plain, renamed = (load_fleet(None, f"plant-{s}-concept", 0) for s in ("stationary", "stagger"))

    x, y = plain.training_windows("plant-03", 3)
    x_after, y_after = renamed.training_windows("plant-03", 3)

    np.testing.assert_array_equal(x, x_after)
    np.testing.assert_array_equal(np.array([0, 2, 1, 3, 4])[y], y_after)


def test_default_fleet_has_two_stationary_clients_and_three_concepts_at_the_end() -> None:
    fleet = load_fleet(None, "plant", 0)

    assert len(fleet.client_ids) == 10
    assert set(fleet.client_ids) - set(fleet.drifted_clients) == {"plant-01", "plant-02"}
    assert {fleet.concept(c, 10) for c in fleet.client_ids} == {"base", "high-load", "swap-a"}


def test_drifts_happen_once_per_drifting_client_at_the_rounds_of_the_events() -> None:
    fleet = load_fleet(None, "plant", 0)

    rounds = [r for c in fleet.client_ids for r in range(1, 11) if fleet.drifts(c, r)]

    assert sorted(rounds) == [3, 3, 5, 5, 7, 7, 9, 9]


def test_gradual_fleet_changes_on_each_step_and_drifts_on_one() -> None:
    fleet = load_fleet(None, "plant-gradual", 0)

    assert [fleet.changes("plant-03", r) for r in range(2, 8)] == [0, 1, 1, 1, 0, 0]
    assert [fleet.drifts("plant-03", r) for r in range(2, 8)] == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("round_num", [3, 4, 5])
def test_mixed_rounds_have_as_many_windows_as_others(round_num: int) -> None:
    windows, labels = load_fleet(None, "plant-gradual", 0).training_windows("plant-03", round_num)

    assert windows.shape == (96, 17, 30)
    assert labels.shape == (96,)


def test_unknown_client_is_named() -> None:
    with pytest.raises(UnknownClientError, match="'plant-77'"):
        load_fleet(None, "plant", 0).training_windows("plant-77", 1)


def test_generated_fleet_needs_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from clma.simulation import load_fleet; "
        "load_fleet(None, 'plant', 0).training_windows('plant-01', 1); "
        "sys.exit(bool({'torch', 'pandas', 'pyarrow', 'scipy', 'sklearn'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
