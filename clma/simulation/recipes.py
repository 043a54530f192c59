"""Fleets by name: ``<data>[-<schedule>][-<kind>]``, for example ``plant-gradual-covariate``.

What is left out is ``stagger`` and ``mixed``. A slash may stand for the first dash.

Examples
--------
>>> load_fleet(None, "plant", seed=0).schedule.name
'stagger'
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clma.errors import InvalidConfigError
from clma.simulation import plant
from clma.simulation.families import KINDS, families_of
from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.long_schedules import default_rounds, schedule_of
from clma.simulation.pronto import pronto_fleet
from clma.simulation.schedule import SHAPES, client_names
from clma.simulation.standing_schedules import APART_SHAPES, group_numbers
from clma.simulation.standing_shards import class_sets

__all__ = ["load_fleet", "plant_fleet", "recipe_names"]

DATA = ("plant", "pronto")
_SPLIT = 3  # stream number of the split; see `clma.simulation.fleet`


def recipe_names() -> tuple[str, ...]:
    """Return the names that `load_fleet` takes, with the short forms first."""
    short = [*DATA, *(f"{d}-{word}" for d in DATA for word in (*SHAPES, *KINDS))]
    return (*short, *(f"{d}-{s}-{k}" for d in DATA for s in SHAPES for k in KINDS))


def load_fleet(data: Path | None, recipe: str, seed: int, *, n_clients: int = 10) -> Fleet:
    """Build a fleet.

    Parameters
    ----------
    data : Path or None
        Recorded table, where the recipe replays one; None for the generator.
    recipe : str
        One of `recipe_names`.
    seed : int, >= 0
    n_clients : int, >= 1

    Returns
    -------
    Fleet

    Raises
    ------
    InvalidConfigError
        If the recipe is unknown, does not fit `data`, or the table cannot be used.
    """
    name = recipe.replace("/", "-", 1)
    if name not in recipe_names():
        raise InvalidConfigError(
            f"recipe {recipe!r} is unknown, wanted {' or '.join(DATA)}, "
            f"then [-{'|'.join(SHAPES)}], then [-{'|'.join(KINDS)}]"
        )
    if seed < 0 or n_clients < 1:
        raise InvalidConfigError(
            f"got seed {seed} and {n_clients} clients, wanted seed >= 0 and at least 1 client"
        )
    kind_of_data, *words = name.split("-")
    shape = next((word for word in words if word in SHAPES), "stagger")
    kind = next((word for word in words if word in KINDS), "mixed")
    if kind_of_data == "plant":
        if data is not None:
            raise InvalidConfigError(f"recipe {recipe!r} generates its data, got the file {data}")
        return plant_fleet(shape, kind, seed, name=name, n_clients=n_clients)
    if data is None:
        raise InvalidConfigError(f"recipe {recipe!r} replays a table, wanted the path of its file")
    return pronto_fleet(data, shape, kind, seed, name=name, n_clients=n_clients)


def plant_fleet(
    shape: str,
    kind: str,
    seed: int,
    *,
    name: str = "plant",
    n_clients: int = 10,
    skew: float | None = None,
) -> Fleet:
    """Build the generated fleet.

    Parameters
    ----------
    shape : str
        See `clma.simulation.long_schedules.schedule_of`.
    kind : {"covariate", "concept", "mixed"}
    seed : int, >= 0
        Draws the plants, their data and the initial model.
    name : str
    n_clients : int, >= 1
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of each plant's class shares; None: all alike.
    """
    client_ids = client_names(n_clients)
    families = families_of(
        kind,
        shape,
        conditions=plant.CONDITIONS[1:],
        n_classes=len(plant.CLASSES),
        relabelled=(1, 2, 3, 4),
    )
    if shape in APART_SHAPES:
        source = plant.PlantSource(seed, shares=_standing_shares(shape, client_ids, seed, skew))
    else:
        source = plant.PlantSource(seed, skew=skew)
    return Fleet(
        name,
        seed,
        schedule_of(shape, client_ids, families),
        source,
        plant.CLASSES,
        ModelSpec.of(
            "clma.simulation.cnn:cnn1d",
            n_variables=len(plant.VARIABLES),
            n_classes=len(plant.CLASSES),
            window=source.window,
        ),
        default_rounds=default_rounds(shape),
    )


def _standing_shares(
    shape: str, client_ids: Sequence[str], seed: int, skew: float | None
) -> dict[str, tuple[float, ...]]:
    """Return the class shares of the plants that have their own under a standing schedule."""
    if shape == "dirichlet" and skew is not None:
        return {c: plant.drawn_shares(seed, c, skew) for c in client_ids}
    # Every plant knows normal running; what sets groups apart are the faults.
    sets = class_sets(len(plant.CLASSES), np.random.default_rng([seed, _SPLIT]), shared=(0,))
    groups = group_numbers(len(client_ids), len(sets)).tolist()
    return {c: plant.shares_of_known(sets[g]) for c, g in zip(client_ids, groups, strict=True)}
