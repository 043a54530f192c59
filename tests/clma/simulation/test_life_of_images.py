"""Images and batch norm in a real federation: what the statistics become."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from clma.client.model_file import read_parameters
from clma.night import close_round
from clma.simulation import Fleet, ModelSpec
from clma.simulation.life import found_federation, live
from clma.simulation.schedule import BASE, build_schedule
from clma.simulation.shards import ShardSource
from clma.simulation.training_config import TrainingConfig

CLIENTS = ("a", "b", "c")


def _fleet() -> Fleet:
    """Three cameras of 8x8 pixels with 32, 64 and 96 images: 2, 4 and 6 steps a round."""
    rng = np.random.default_rng(0)
    edges = (0, 32, 96, 192)
    shards = {
        (client, BASE.condition): np.arange(start, stop)
        for client, start, stop in zip(CLIENTS, edges, edges[1:], strict=False)
    }
    return Fleet(
        "cameras",
        0,
        build_schedule("stationary", CLIENTS, ()),
        ShardSource(
            rng.normal(size=(200, 3, 8, 8)).astype(np.float32),
            np.arange(200) % 4,
            shards,
            {BASE.condition: np.arange(192, 200)},
        ),
        ("n", "e", "s", "w"),
        ModelSpec.of("clma.simulation.cnn2d:cnn2d", n_channels=3, n_classes=4, size=8),
        training=TrainingConfig(batch_size=16, local_epochs=1),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The model that all three are served after one round."""
    folder, fleet = tmp_path_factory.mktemp("cameras"), _fleet()
    federation = found_federation(
        fleet, folder / "store", "cameras", folder, preset="fedavg", n_rounds=1
    )

    def close(_: int) -> None:
        close_round(federation, now=dt.datetime.now(dt.UTC), force=True)

    live(fleet, federation, folder / "disks", n_rounds=1, close=close, training=fleet.training)
    (digest,) = {c.serving_digest for c in federation.state().clients.values()}
    path: Path = federation.model_path(digest)
    return read_parameters(path)


def test_counter_of_batches_is_the_largest_and_stays_a_counter(
    model: dict[str, np.ndarray],
) -> None:
    assert model["norm1.num_batches_tracked"].dtype == np.int64
    assert model["norm1.num_batches_tracked"] == 6


def test_running_statistics_are_averaged_with_the_weights(model: dict[str, np.ndarray]) -> None:
    start = _fleet().initial_parameters()

    assert (model["norm1.running_var"] > 0).all()
    assert not np.array_equal(model["norm1.running_var"], start["norm1.running_var"])
    assert set(model) == set(start)
