"""Handwritten digits as a fleet: ten cameras, each with its own 125 of 1,797 images of 8x8 pixels.

The images are real and come with scikit-learn; all drift is scripted: labels that rotate, or
cameras that see negatives, lie on their side or lose light.

References
----------
.. [1] Alpaydin and Kaynak (1998), "Optical Recognition of Handwritten Digits", UCI Machine Learning
   Repository; the test part, as `sklearn.datasets.load_digits` has it.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from clma.simulation.dealing import class_shares, deal_evenly, deal_skewed, hold_out
from clma.simulation.families import rotating_families
from clma.simulation.fleet import Fleet, ModelSpec, Windows
from clma.simulation.images import CONDITIONS, STYLES, look
from clma.simulation.long_schedules import default_rounds, schedule_of
from clma.simulation.schedule import BASE, client_names
from clma.simulation.shards import ShardSource
from clma.simulation.standing_schedules import APART_SHAPES
from clma.simulation.standing_shards import deal_apart
from clma.simulation.training_config import TrainingConfig

__all__ = ["CLASSES", "digits_fleet"]

CLASSES = tuple(str(digit) for digit in range(10))
SIZE = 8
N_CLIENTS = 10
N_DRAWN = 100  # of a shard of 125, so that two rounds differ
TEST_SHARE = 0.3
TRAINING = TrainingConfig(learning_rate=0.05, local_epochs=5, clip_norm=math.inf)
_SPLIT = 3  # stream number of the split; see `clma.simulation.fleet`


def digits_fleet(
    shape: str, kind: str, seed: int, *, name: str = "digits", skew: float | None = None
) -> Fleet:
    """Build the fleet.

    Parameters
    ----------
    shape : str
        See `clma.simulation.long_schedules.schedule_of`.
    kind : {"covariate", "concept", "mixed"}
    seed : int, >= 0
        Deals the images, draws the rounds and the initial model.
    name : str
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of each client's class shares; None: all alike.
    """
    client_ids = client_names(N_CLIENTS)
    images, labels = _recorded()
    rng = np.random.default_rng([seed, _SPLIT])
    rows, held_out = hold_out(labels, TEST_SHARE, rng)
    tests: tuple[NDArray[np.int64], ...] = ()
    if shape in APART_SHAPES:
        dealt, tests = deal_apart(shape, labels, rows, held_out, N_CLIENTS, rng, skew=skew)
    elif skew is None:
        dealt = deal_evenly(labels, rows, N_CLIENTS, rng)
    else:
        shares = class_shares(N_CLIENTS, len(CLASSES), skew, rng)
        dealt = deal_skewed(labels, rows, shares, len(rows) // N_CLIENTS, rng)
    moves = STYLES if shape == "style-groups" else CONDITIONS
    conditions = (BASE.condition, *moves)
    source = ShardSource(
        images,
        labels,
        {(c, k): shard for c, shard in zip(client_ids, dealt, strict=True) for k in conditions},
        dict.fromkeys(conditions, held_out),
        view=look,
        own_held_out_rows=dict(zip(client_ids, tests, strict=True)) if tests else {},
    )
    families = rotating_families(kind, shape, moves, len(CLASSES))
    return Fleet(
        name,
        seed,
        schedule_of(shape, client_ids, families),
        source,
        CLASSES,
        ModelSpec.of(
            "clma.simulation.mlp:mlp", n_inputs=SIZE * SIZE, n_hidden=64, n_classes=len(CLASSES)
        ),
        n_windows=max(len(own) for own in dealt) if shape == "dirichlet" else N_DRAWN,
        default_rounds=default_rounds(shape),
        training=TRAINING,
    )


@functools.cache
def _recorded() -> Windows:
    """Return all images, brightness in [0, 1], and labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images: NDArray[np.float32] = (digits.images / 16.0).astype(np.float32)
    return images, digits.target.astype(np.int64)
