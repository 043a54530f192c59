"""Fleets with known drift: a seeded generator and the replay of recorded data.

`load_fleet` builds one by the name of its recipe; a `Fleet` says what each client sees in each
round and which concept that is. Only `cnn` and `training` need torch, only `replay` needs pandas.
"""

from __future__ import annotations

from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.recipes import load_fleet, recipe_names
from clma.simulation.schedule import Concept

__all__ = ["Concept", "Fleet", "ModelSpec", "load_fleet", "recipe_names"]
