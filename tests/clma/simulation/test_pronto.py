"""The replayed benchmark; the file is not in the repository."""

from __future__ import annotations

import numpy as np
import pytest

from clma.simulation import Fleet, load_fleet
from clma.simulation.pronto import FILE_NAME
from tests.clma.simulation.recorded import DATA_DIR, needs

DATA = DATA_DIR / "pronto"

pytestmark = needs(f"pronto/{FILE_NAME}")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load_fleet(DATA, "pronto", 0)


def test_base_condition_has_the_test_windows_of_the_evidence(fleet: Fleet) -> None:
    windows, labels = fleet.test_windows("plant-01", 1)

    assert windows.shape == (189, 17, 30)
    assert (labels == 0).sum() == 24


def test_training_rounds_have_96_windows_of_four_classes(fleet: Fleet) -> None:
    drawn = [fleet.training_windows("plant-01", r) for r in range(1, 11)]

    assert {windows.shape for windows, _ in drawn} == {(96, 17, 30)}
    assert set(np.concatenate([labels for _, labels in drawn]).tolist()) == {0, 1, 2, 3}


def test_squash_keeps_the_moved_condition_trainable(fleet: Fleet) -> None:
    windows, _ = fleet.training_windows("plant-03", 3)

    assert fleet.concept("plant-03", 3) == "150/0.5"
    assert 2.0 < np.abs(windows).max() < 10.0


@pytest.mark.parametrize(
    ("recipe", "concepts"),
    [
        ("pronto-covariate", {"base", "150/0.5"}),
        ("pronto-concept", {"base", "swap-a", "swap-b"}),
        ("pronto-mixed", {"base", "150/0.5", "swap-a"}),
    ],
)
def test_recipes_end_with_their_concepts(recipe: str, concepts: set[str]) -> None:
    fleet = load_fleet(DATA / FILE_NAME, recipe, 0)

    assert {fleet.concept(c, fleet.default_rounds) for c in fleet.client_ids} == concepts
    assert {fleet.concept(c, 10) for c in ("plant-01", "plant-02")} == {"base"}


def test_swapped_labels_are_those_of_the_two_air_faults(fleet: Fleet) -> None:
    (_, before), (_, after) = (fleet.test_windows("plant-04", r) for r in (2, 3))

    np.testing.assert_array_equal(np.array([0, 2, 1, 3, 4])[before], after)


def test_repeated_drift_reaches_day_four_with_slugging() -> None:
    fleet = load_fleet(DATA, "pronto-repeat", 0)

    _, labels = fleet.test_windows("plant-03", 5)

    assert fleet.concept("plant-03", 5) == "day-4"
    assert set(labels.tolist()) == {0, 4}
