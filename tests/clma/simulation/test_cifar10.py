"""Colour images; the files are not in the repository."""

from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidConfigError
from clma.simulation import Fleet
from clma.simulation.cifar10 import cifar10_fleet
from clma.simulation.shards import ShardSource
from tests.clma.simulation.recorded import DATA_DIR, needs

DATA = DATA_DIR / "cifar10"

pytestmark = needs("cifar10/train_4.parquet")


def _fleet(kind: str = "concept", seed: int = 0, skew: float | None = None) -> Fleet:
    return cifar10_fleet(DATA, "stagger", kind, seed, n_images=500, skew=skew)


def _source(fleet: Fleet) -> ShardSource:
    assert isinstance(fleet.source, ShardSource)
    return fleet.source


def test_clients_have_as_many_images_of_each_class() -> None:
    fleet = _fleet()

    for client_id in fleet.client_ids:
        windows, labels = fleet.training_windows(client_id, 1)
        assert windows.shape == (50, 3, 32, 32)
        assert np.bincount(labels).tolist() == [5] * 10


def test_test_has_as_many_images_of_each_class() -> None:
    assert np.bincount(_fleet().test_windows("plant-01", 1)[1]).tolist() == [5] * 10


@pytest.mark.parametrize("skew", [None, 0.5])
def test_shards_are_disjoint_and_held_out_images_are_test_images(skew: float | None) -> None:
    source = _source(_fleet(skew=skew))

    rows = np.concatenate([own for (_, k), own in source.shards.items() if k == "base"])

    assert len(np.unique(rows)) == len(rows) == 500
    assert rows.max() < 50_000 <= source.held_out_rows["base"].min()


def test_a_round_is_the_whole_shard_in_an_order_of_its_own() -> None:
    fleet = _fleet()

    (one, _), (two, _) = (fleet.training_windows("plant-01", r) for r in (1, 2))

    assert not np.array_equal(one, two)
    assert {x.tobytes() for x in one} == {x.tobytes() for x in two}


def test_images_are_decoded_as_their_own() -> None:
    import io

    import pandas as pd
    from PIL import Image

    source = _source(_fleet())
    row = int(source.shards["plant-05", "base"][17])
    content = pd.read_parquet(DATA / f"train_{row // 10_000}.parquet")["image_jpeg"][row % 10_000]

    np.testing.assert_array_equal(source.inputs[row], np.asarray(Image.open(io.BytesIO(content))))


def test_labels_rotate_three_up_and_three_down() -> None:
    fleet = _fleet()

    for client_id, steps in (("plant-03", 3), ("plant-04", -3)):
        (x, before), (x_after, after) = (fleet.test_windows(client_id, r) for r in (2, 3))
        np.testing.assert_array_equal(x, x_after)
        np.testing.assert_array_equal((before + steps) % 10, after)


def test_covariate_drift_inverts_one_family_and_turns_the_other() -> None:
    fleet = _fleet("covariate")
    before, _ = fleet.test_windows("plant-03", 2)

    np.testing.assert_allclose(fleet.test_windows("plant-03", 3)[0], -before, atol=1e-5)
    turned = np.rot90(before, axes=(2, 3))
    np.testing.assert_array_equal(fleet.test_windows("plant-04", 3)[0], turned)


def test_skewed_clients_have_few_classes_and_as_many_images() -> None:
    fleet = _fleet(skew=0.5)
    counts = [np.bincount(fleet.training_windows(c, 1)[1], minlength=10) for c in fleet.client_ids]

    assert {int(own.sum()) for own in counts} == {50}
    assert np.mean([own.max() for own in counts]) > 12


def test_seed_decides_the_shards() -> None:
    one, same, other = (_source(_fleet(seed=seed)).shards["plant-01", "base"] for seed in (1, 1, 2))

    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("n_images", [0, 150, 50_100, -100])
def test_numbers_of_images_that_do_not_divide_are_refused(n_images: int) -> None:
    with pytest.raises(InvalidConfigError, match="a multiple of 100 between 100 and 50000"):
        cifar10_fleet(DATA, "stagger", "concept", 0, n_images=n_images)
