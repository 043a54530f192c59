"""Image fleets that train a small head on the embeddings of a frozen network.

Training a network from pixels takes minutes a run on a few cores. Here the images are embedded
once, by an encoder that nobody trains, and a client trains a network of one hidden layer on the
embeddings. Signatures are made of the same embeddings.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import Encoder
from clma.errors import InvalidConfigError
from clma.simulation.dealing import class_shares, deal_evenly, deal_skewed, hold_out
from clma.simulation.embeddings import embed_images, show_on_stderr
from clma.simulation.families import families_of, rotating_families
from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.images import CONDITIONS, STYLES
from clma.simulation.long_schedules import default_rounds, schedule_of
from clma.simulation.schedule import BASE, Concept, Schedule, client_names
from clma.simulation.shards import ShardSource
from clma.simulation.standing_schedules import APART_SHAPES
from clma.simulation.standing_shards import deal_apart
from clma.simulation.training_config import TrainingConfig

__all__ = ["SIZE", "ImageSet", "backbone", "frozen_fleet"]

N_CLIENTS = 10
N_HIDDEN = 64
SIZE = 224
"""Pixels of a side that the encoder is trained for."""

TEST_SHARE = 0.3
MANY_CLASSES = 7  # from here on labels rotate by three without meeting
TRAINING = TrainingConfig(learning_rate=0.02, batch_size=16, local_epochs=3, clip_norm=math.inf)
_SPLIT = 3  # stream number of the split; see `clma.simulation.fleet`

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Images with labels, in memory.

    Parameters
    ----------
    pixels : ndarray of shape (n, side, side) or (n, side, side, 3)
        Brightness, 0 to 255.
    labels : ndarray of shape (n,)
        Class indices.
    classes : tuple of str
    held_out : ndarray of row numbers, or None
        What the publishers keep for tests; None: each seed holds 30 % of every class out.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    held_out: Rows | None = None


def frozen_fleet(
    images: ImageSet,
    shape: str,
    kind: str,
    seed: int,
    *,
    name: str,
    skew: float | None = None,
    cache: Path | None = None,
    encoder: Encoder | None = None,
    size: int = SIZE,
) -> Fleet:
    """Build the fleet.

    Parameters
    ----------
    images : ImageSet
    shape : str
        See `clma.simulation.long_schedules.schedule_of`.
    kind : {"covariate", "concept", "mixed"}
    seed : int, >= 0
        Deals the images, shuffles the rounds, draws the initial head.
    name : str
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of the class shares; None: all alike.
    cache : Path or None
        Folder that keeps embeddings between processes.
    encoder : Encoder or None
        Of samples (n, 3, size, size) in [0, 1]; None: `backbone`.
    size : int, >= 1
        Pixels of a side that the encoder wants.

    Raises
    ------
    InvalidConfigError
        If there are too few classes for the schedule, or too few images for the clients.
    MissingExtraError
        If the packages of the encoder are not there.
    """
    encoder = backbone() if encoder is None else encoder
    network = cast("Hashable", encoder)
    client_ids = client_names(N_CLIENTS)
    schedule = schedule_of(shape, client_ids, _families(shape, kind, len(images.classes)))
    conditions = _conditions(schedule)
    labels = images.labels
    rng = np.random.default_rng([seed, _SPLIT])
    rows, held_out = _split(images, rng)
    shards, tests = _deal(labels, rows, held_out, shape, skew, rng)
    return Fleet(
        name,
        seed,
        schedule,
        ShardSource(
            np.stack([_embedded(images, c, network, size, cache) for c in conditions], axis=1),
            labels,
            {(c, k): own for c, own in zip(client_ids, shards, strict=True) for k in conditions},
            dict.fromkeys(conditions, held_out),
            view=_View(conditions),
            own_held_out_rows=dict(zip(client_ids, tests, strict=True)) if tests else {},
        ),
        images.classes,
        ModelSpec.of(
            "clma.simulation.mlp:mlp",
            n_inputs=encoder.dim,
            n_hidden=N_HIDDEN,
            n_classes=len(images.classes),
        ),
        n_windows=max(len(own) for own in shards),
        default_rounds=default_rounds(shape),
        training=TRAINING,
        encoder=encoder.fingerprint,
    )


@functools.cache
def backbone() -> Encoder:
    """Return the encoder of all these fleets; MissingExtraError if its packages are not there."""
    from clma.encoders.vision_demo import efficientnet_lite0

    return efficientnet_lite0(SIZE)


@dataclass(frozen=True, slots=True)
class _View:
    """Picks the embeddings of a condition out of those of all of them."""

    conditions: tuple[str, ...]

    def __call__(self, inputs: NDArray[Any], condition: str) -> NDArray[np.float32]:
        return np.asarray(inputs[:, self.conditions.index(condition)], np.float32)


def _families(shape: str, kind: str, n_classes: int) -> tuple[tuple[Concept, ...], ...]:
    moves = STYLES if shape == "style-groups" else CONDITIONS
    if n_classes >= MANY_CLASSES:
        return rotating_families(kind, shape, moves, n_classes)
    if n_classes < 3 or (shape == "repeat" and kind != "covariate"):
        raise InvalidConfigError(
            f"schedule {shape!r} of kind {kind!r} with {n_classes} classes, wanted at least "
            f"{MANY_CLASSES if shape == 'repeat' else 3}"
        )
    # Two pairs of classes exchange their names; of three classes one is in both.
    pairs = (0, 1, 2, 3) if n_classes > 3 else (0, 1, 1, 2)
    return families_of(kind, shape, moves, n_classes, pairs)


def _conditions(schedule: Schedule) -> tuple[str, ...]:
    """Return the conditions that clients see at some time."""
    concepts = [event.concept for event in schedule.events]
    concepts += [schedule.concept(client_id, 0) for client_id in schedule.client_ids]
    return tuple(sorted({BASE.condition, *(concept.condition for concept in concepts)}))


def _split(images: ImageSet, rng: np.random.Generator) -> tuple[Rows, Rows]:
    if images.held_out is None:
        return hold_out(images.labels, TEST_SHARE, rng)
    return np.setdiff1d(np.arange(len(images.labels)), images.held_out), images.held_out


def _deal(
    labels: NDArray[np.int64],
    rows: Rows,
    held_out: Rows,
    shape: str,
    skew: float | None,
    rng: np.random.Generator,
) -> tuple[Sequence[Rows], Sequence[Rows]]:
    """Return the shard of each client, and where it has one its own test."""
    if shape in APART_SHAPES:
        return deal_apart(shape, labels, rows, held_out, N_CLIENTS, rng, skew=skew)
    if skew is None:
        return deal_evenly(labels, rows, N_CLIENTS, rng), ()
    shares = class_shares(N_CLIENTS, int(labels.max()) + 1, skew, rng)
    return deal_skewed(labels, rows, shares, len(rows) // N_CLIENTS, rng), ()


@functools.lru_cache(maxsize=8)
def _embedded(
    images: ImageSet, condition: str, network: Hashable, size: int, cache: Path | None
) -> NDArray[np.float32]:
    """Return the embeddings of all images; a process embeds or reads them once."""
    encoder = cast("Encoder", network)
    return embed_images(
        images.pixels, condition, encoder, size=size, cache=cache, say=show_on_stderr
    )
