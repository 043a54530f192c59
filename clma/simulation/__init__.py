"""Fleets with known drift: a seeded generator and the replay of recorded data.

`load_fleet` builds one by the name of its recipe, `load_scenario` one of the comparison's; a
`Fleet` says what each client sees in each round and which concept that is. Networks and training
need torch, recorded tables pandas, digits scikit-learn, CIFAR-10 Pillow; nothing else does.
"""

from __future__ import annotations

from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.recipes import load_fleet, recipe_names
from clma.simulation.scenarios import load_scenario, scenario_names
from clma.simulation.schedule import Concept

__all__ = [
    "Concept",
    "Fleet",
    "ModelSpec",
    "load_fleet",
    "load_scenario",
    "recipe_names",
    "scenario_names",
]
