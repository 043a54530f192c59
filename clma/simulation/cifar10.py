"""CIFAR-10 as a fleet: ten cameras, 2,000 images each, the network of the public package's size.

The images are real; all drift is scripted, as with the digits. A round is one pass over a client's
whole shard, without augmentation.

References
----------
.. [1] Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny Images", technical report.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.cifar10_images import CLASSES, N_TRAIN_IMAGES, SIZE, load_images
from clma.simulation.dealing import class_shares, deal_evenly, deal_skewed
from clma.simulation.families import rotating_families
from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.frozen import ImageSet
from clma.simulation.images import CONDITIONS, STYLES, look
from clma.simulation.long_schedules import schedule_of
from clma.simulation.schedule import BASE, client_names
from clma.simulation.shards import ShardSource
from clma.simulation.standing_schedules import APART_SHAPES
from clma.simulation.standing_shards import deal_apart
from clma.simulation.training_config import TrainingConfig

__all__ = ["N_IMAGES", "cifar10_fleet", "cifar10_images"]

N_CLIENTS = 10
N_FROZEN = 10_000  # of `cifar10_images`
N_IMAGES = 20_000
"""Training images of all clients together."""

TRAINING = TrainingConfig(learning_rate=0.005, batch_size=32, local_epochs=1, clip_norm=math.inf)
_SPLIT = 3  # stream number of the split; see `clma.simulation.fleet`


def cifar10_fleet(
    data: Path,
    shape: str,
    kind: str,
    seed: int,
    *,
    name: str = "cifar10",
    skew: float | None = None,
    n_images: int = N_IMAGES,
    cache: Path | None = None,
) -> Fleet:
    """Build the fleet.

    Parameters
    ----------
    data : Path
        Folder of ``train_0.parquet`` to ``train_4.parquet`` and ``test.parquet``.
    shape : str
        See `clma.simulation.long_schedules.schedule_of`.
    kind : {"covariate", "concept", "mixed"}
    seed : int, >= 0
        Chooses and deals the images, shuffles the rounds, draws the initial model.
    name : str
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of each client's class shares; None: all alike.
    n_images : int in [100, 50000], a multiple of 100
        Training images of all clients; a tenth as many test images are held out.
    cache : Path or None
        Folder that keeps decoded images between processes.

    Raises
    ------
    InvalidConfigError
        If a file is missing or cannot be read, or `n_images` is out of range.
    """
    if not 100 <= n_images <= N_TRAIN_IMAGES or n_images % 100:
        raise InvalidConfigError(
            f"{n_images} images, wanted a multiple of 100 between 100 and {N_TRAIN_IMAGES}"
        )
    client_ids = client_names(N_CLIENTS)
    store = load_images(data, cache)
    labels = store.labels
    rng = np.random.default_rng([seed, _SPLIT])
    train, test = np.arange(N_TRAIN_IMAGES), np.arange(N_TRAIN_IMAGES, len(labels))
    held_out = _balanced(labels, test, n_images // N_CLIENTS, rng)
    tests: tuple[NDArray[np.int64], ...] = ()
    if shape in APART_SHAPES:
        chosen = _balanced(labels, train, n_images, rng)
        dealt, tests = deal_apart(shape, labels, chosen, held_out, N_CLIENTS, rng, skew=skew)
    elif skew is None:
        chosen = _balanced(labels, train, n_images, rng)
        dealt = deal_evenly(labels, chosen, N_CLIENTS, rng)
    else:
        shares = class_shares(N_CLIENTS, len(CLASSES), skew, rng)
        dealt = deal_skewed(labels, train, shares, n_images // N_CLIENTS, rng)
    moves = STYLES if shape == "style-groups" else CONDITIONS
    conditions = (BASE.condition, *moves)
    return Fleet(
        name,
        seed,
        schedule_of(shape, client_ids, rotating_families(kind, shape, moves, len(CLASSES))),
        ShardSource(
            store.decoded(np.concatenate([held_out, *dealt])),
            labels,
            {(c, k): own for c, own in zip(client_ids, dealt, strict=True) for k in conditions},
            dict.fromkeys(conditions, held_out),
            view=_seen,
            own_held_out_rows=dict(zip(client_ids, tests, strict=True)) if tests else {},
        ),
        CLASSES,
        ModelSpec.of("clma.simulation.cnn2d:cnn2d", n_channels=3, n_classes=10, size=SIZE),
        n_windows=max(len(own) for own in dealt),
        training=TRAINING,
    )


@functools.lru_cache(maxsize=1)
def cifar10_images(data: Path) -> ImageSet:
    """Choose 10,000 images to train on and 1,000 to test on, as many of each class.

    The choice is the same for every seed, since each image is embedded once and for all.

    Parameters
    ----------
    data : Path
        As in `cifar10_fleet`.

    Raises
    ------
    InvalidConfigError
        If a file is missing or cannot be read.
    """
    store = load_images(data)
    rng = np.random.default_rng(_SPLIT)
    train = _balanced(store.labels, np.arange(N_TRAIN_IMAGES), N_FROZEN, rng)
    test = np.arange(N_TRAIN_IMAGES, len(store.labels))
    rows = np.concatenate([train, _balanced(store.labels, test, N_FROZEN // 10, rng)])
    pixels = store.decoded(rows)[rows]
    return ImageSet(pixels, store.labels[rows], CLASSES, np.arange(N_FROZEN, len(rows)))


def _balanced(
    labels: NDArray[np.int64], rows: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Choose `n` rows, as many of every class."""
    each = n // len(CLASSES)
    chosen = [rng.permutation(rows[labels[rows] == c])[:each] for c in range(len(CLASSES))]
    return np.sort(np.concatenate(chosen))


def _seen(images: NDArray[Any], condition: str) -> NDArray[np.float32]:
    """Return bytes as the network takes them: channels first, values in [-2, 2]."""
    bright = look(images.astype(np.float32) / np.float32(255.0), condition)
    scaled = (bright - np.float32(0.5)) / np.float32(0.25)
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
