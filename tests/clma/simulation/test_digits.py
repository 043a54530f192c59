from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("sklearn")

from clma.simulation.digits import digits_fleet
from clma.simulation.shards import ShardSource


def _source(seed: int = 0, skew: float | None = None) -> ShardSource:
    source = digits_fleet("stagger", "concept", seed, skew=skew).source
    assert isinstance(source, ShardSource)
    return source


@pytest.mark.parametrize("skew", [None, 0.5])
def test_shards_and_held_out_images_are_disjoint(skew: float | None) -> None:
    source = _source(skew=skew)

    rows = np.concatenate(
        [own for (_, condition), own in source.shards.items() if condition == "base"]
        + [source.held_out_rows["base"]]
    )

    assert len(np.unique(rows)) == len(rows)
    assert len(rows) >= 1797 - 9


def test_shards_have_about_125_images_and_all_digits_alike() -> None:
    source = _source()

    for client_id in ("plant-01", "plant-10"):
        counts = np.bincount(source.labels[source.shards[client_id, "base"]], minlength=10)
        assert 123 <= counts.sum() <= 127
        assert np.ptp(counts) <= 2


def test_held_out_is_thirty_percent_of_each_digit() -> None:
    source = _source()

    held_out = np.bincount(source.labels[source.held_out_rows["base"]])
    np.testing.assert_allclose(held_out / np.bincount(source.labels), 0.3, atol=0.01)


def test_rounds_are_different_draws_of_one_shard() -> None:
    fleet = digits_fleet("stationary", "concept", 0)

    (one, _), (two, _) = (fleet.training_windows("plant-01", r) for r in (1, 2))

    images = [{image.tobytes() for image in drawn} for drawn in (one, two)]
    assert one.shape == (100, 8, 8)
    assert 60 <= len(images[0] & images[1]) < 100


def test_labels_rotate_three_up_and_three_down() -> None:
    fleet = digits_fleet("stagger", "concept", 0)

    for client_id, steps in (("plant-03", 3), ("plant-04", -3)):
        (x, before), (x_after, after) = (fleet.test_windows(client_id, r) for r in (2, 3))
        np.testing.assert_array_equal(x, x_after)
        np.testing.assert_array_equal((before + steps) % 10, after)


def test_repeated_rotations_accumulate() -> None:
    fleet = digits_fleet("repeat", "concept", 0)

    _, before = fleet.test_windows("plant-04", 1)
    steps = [(fleet.test_windows("plant-04", r)[1] - before) % 10 for r in (3, 5, 7, 9)]

    assert [set(step.tolist()) for step in steps] == [{9}, {8}, {7}, {6}]


def test_covariate_drift_changes_pixels_and_no_label() -> None:
    fleet = digits_fleet("stagger", "covariate", 0)

    (x, y), (x_after, y_after) = (fleet.test_windows("plant-03", r) for r in (2, 3))

    np.testing.assert_allclose(x_after, 1.0 - x)
    np.testing.assert_array_equal(y, y_after)


def test_skewed_clients_have_few_digits_each() -> None:
    def largest_share(skew: float | None) -> float:
        source = _source(skew=skew)
        own = [source.labels[source.shards[f"plant-{n:02d}", "base"]] for n in range(1, 11)]
        return float(np.mean([np.bincount(labels).max() / len(labels) for labels in own]))

    assert largest_share(None) < 0.12
    assert largest_share(0.5) > 0.2


def test_everything_follows_from_seed_client_and_round() -> None:
    def drawn(seed: int, client_id: str, round_num: int) -> bytes:
        fleet = digits_fleet("repeat", "mixed", seed)
        return b"".join(a.tobytes() for a in fleet.training_windows(client_id, round_num))

    places = list(itertools.product((0, 1), ("plant-03", "plant-04"), (1, 2)))
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(0, "plant-03", 2) == drawn(0, "plant-03", 2)
