"""Fleets of heads on embeddings, with an encoder that only flattens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clma.encoders.flatten import Flatten
from clma.errors import InvalidConfigError
from clma.simulation.fleet import Fleet
from clma.simulation.frozen import ImageSet, frozen_fleet
from clma.simulation.shards import ShardSource

ENCODER = Flatten((3, 4, 4))
LABELS = np.arange(600) % 3
IMAGES = ImageSet(
    np.random.default_rng(0).integers(0, 256, size=(600, 4, 4), dtype=np.uint8),
    LABELS,
    ("a", "b", "c"),
)


def _fleet(shape: str, kind: str = "concept", seed: int = 0, images: ImageSet = IMAGES) -> Fleet:
    return frozen_fleet(images, shape, kind, seed, name="images", skew=0.5, encoder=ENCODER, size=4)


def _source(fleet: Fleet) -> ShardSource:
    assert isinstance(fleet.source, ShardSource)
    return fleet.source


def test_clients_train_on_embeddings_of_their_own_images() -> None:
    fleet = _fleet("stationary")
    source = _source(fleet)

    windows, labels = fleet.training_windows("plant-04", 1)

    rows = source.shards["plant-04", "base"]
    wanted = np.repeat(IMAGES.pixels[rows][:, None], 3, axis=1).reshape(len(rows), -1) / 255.0
    assert windows.shape == (len(rows), 48)
    order = np.lexsort(windows.T), np.lexsort(wanted.astype(np.float32).T)
    np.testing.assert_allclose(windows[order[0]], wanted[order[1]], rtol=1e-5)
    np.testing.assert_array_equal(labels[order[0]], LABELS[rows][order[1]])


def test_fleet_names_the_encoder_that_its_windows_are_of() -> None:
    assert _fleet("stationary").encoder == ENCODER.fingerprint


def test_no_image_is_trained_on_by_two_or_held_out() -> None:
    for shape in ("stationary", "dirichlet", "class-groups", "style-groups"):
        source = _source(_fleet(shape, "covariate"))
        rows = [own for (_, condition), own in source.shards.items() if condition == "base"]
        dealt = np.concatenate([*rows, source.held_out_rows["base"]])
        assert len(np.unique(dealt)) == len(dealt)


def test_published_test_images_are_held_out_whatever_the_seed() -> None:
    images = dataclasses.replace(IMAGES, held_out=np.arange(570, 600))

    held_out = [_source(_fleet("stationary", seed=s, images=images)).held_out_rows for s in (0, 1)]

    assert [rows["base"].tolist() for rows in held_out] == [list(range(570, 600))] * 2


def test_styles_are_seen_from_the_start_by_training_and_by_test() -> None:
    fleet = _fleet("style-groups", "covariate")
    assert [fleet.concept(c, 1) for c in fleet.client_ids[::3]] == [
        "base", "base", "invert", "grainy",
    ]  # fmt: skip

    base, inverted = (fleet.test_windows(c, 1)[0] for c in ("plant-01", "plant-05"))
    np.testing.assert_allclose(inverted, 1.0 - base, atol=1e-6)


def test_three_classes_exchange_names_in_two_ways() -> None:
    fleet = _fleet("stagger")

    swaps = {event.concept.relabelling for event in fleet.schedule.events}
    assert swaps == {(1, 0, 2), (0, 2, 1)}


def test_more_names_than_three_classes_have_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="'repeat' of kind 'concept' with 3 classes"):
        _fleet("repeat")
