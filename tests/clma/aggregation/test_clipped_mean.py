from __future__ import annotations

import numpy as np
import pytest

from clma.cohorting.placement import AggregationJob
from clma.config import preset_config
from clma.records import SealedUpdate
from clma.round import aggregate_cohort
from tests.clma.aggregation.voters import model_file, model_of
from tests.clma.shelf import Shelf


def test_a_long_update_is_cut_to_three_median_lengths(shelf: Shelf) -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [60.0, 80.0]])
    made = model_of(shelf, rows, method="clipped_mean")
    np.testing.assert_allclose(made, [(1 + 1.8) / 3, (1 + 2.4) / 3])


def test_a_clipped_update_keeps_its_direction(shelf: Shelf) -> None:
    base = np.array([10.0, -10.0, 5.0])
    away = np.array([300.0, -400.0, 1200.0])
    rows = base + np.array([[1.0, 0, 0], [0, 1.0, 0], away])
    clipped = 3 * model_of(shelf, rows, base=base, method="clipped_mean") - rows[0] - rows[1] - base
    np.testing.assert_allclose(clipped / np.linalg.norm(clipped), away / np.linalg.norm(away))


def test_where_nobody_is_clipped_it_is_the_weighted_mean_to_the_bit(shelf: Shelf) -> None:
    rows = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
    weights = [5, 1, 2, 9, 4, 3]
    clipped = model_of(shelf, rows, weights=weights, method="clipped_mean")
    assert clipped.tolist() == model_of(shelf, rows, weights=weights).tolist()


def test_of_two_the_longer_one_is_clipped(shelf: Shelf) -> None:
    rows = np.array([[1.0], [100.0]])
    assert model_of(shelf, rows, method="clipped_mean").tolist() == [(1 + 3) / 2]


def test_an_update_that_did_not_move_is_left_alone(shelf: Shelf) -> None:
    rows = np.array([[0.0], [1.0], [1.0]])
    assert model_of(shelf, rows, method="clipped_mean") == pytest.approx([2 / 3])


@pytest.mark.parametrize("part", ["w", "bn.running_var"])
def test_no_part_of_the_model_is_a_way_in(shelf: Shelf, part: str) -> None:
    """Statistics of normalisation layers, which cohorting does not look at, are clipped apart."""
    models = [{"w": np.array([1.0]), "bn.running_var": np.array([50.0])} for _ in range(4)]
    models[3][part] = models[3][part] * 1e6

    made = model_file(shelf, models, method="clipped_mean")

    other = {"w": "bn.running_var", "bn.running_var": "w"}[part]
    assert shelf.read(made.sha256, part) == pytest.approx(1.5 * models[0][part])
    assert shelf.read(made.sha256, other) == pytest.approx(models[0][other])


def test_every_update_is_shortened_towards_the_model_it_was_sent(shelf: Shelf) -> None:
    here, there = shelf.put({"w": np.array([0.0])}), shelf.put({"w": np.array([10.0])})
    voters = [
        SealedUpdate("p1", here.sha256, shelf.put({"w": np.array([1.0])}), 1, False),
        SealedUpdate("p2", there.sha256, shelf.put({"w": np.array([11.0])}), 1, False),
        SealedUpdate("p3", there.sha256, shelf.put({"w": np.array([90.0])}), 2, False),
    ]
    config = preset_config("test", aggregation={"method": "clipped_mean"})
    job = AggregationJob("c0", tuple(voters))

    made = aggregate_cohort(job, shelf.open, here.sha256, config, shelf.save)

    assert shelf.read(made.model_digest) == pytest.approx([(1 + 11 + 2 * 13) / 4])


@pytest.mark.parametrize("part", ["w", "bn.running_var"])
def test_those_who_did_not_move_shorten_nobody(shelf: Shelf, part: str) -> None:
    """Of two, the one that sends its model back untouched must not take the other's vote."""
    zeros = {"w": np.array([0.0]), "bn.running_var": np.array([0.0])}
    made = model_file(shelf, [zeros, {**zeros, part: np.array([1.0])}], method="clipped_mean")
    assert shelf.read(made.sha256, part) == [0.5]
