"""Clients that differ from the first round on and stay as they are: nobody drifts.

Whether a method finds out who belongs together is here not a question of time. Three ways of being
different: other shares of the classes, other classes altogether, other looks of the same classes.

Examples
--------
>>> from clma.simulation.schedule import client_names
>>> schedule = build_standing_schedule("class-groups", client_names(10), ())
>>> [schedule.concept(client_id, 1).name for client_id in ("plant-04", "plant-05", "plant-10")]
['classes-1', 'classes-2', 'classes-3']
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.schedule import BASE, Concept, Schedule

__all__ = [
    "APART_SHAPES",
    "N_CLASS_GROUPS",
    "STANDING_SHAPES",
    "build_standing_schedule",
    "group_numbers",
]

STANDING_SHAPES = ("dirichlet", "class-groups", "style-groups")
APART_SHAPES = ("dirichlet", "class-groups")
"""Those in which clients have classes, or shares of them, and hence tests of their own."""

N_CLASS_GROUPS = 3


def build_standing_schedule(
    shape: str, client_ids: Sequence[str], families: Sequence[Sequence[Concept]]
) -> Schedule:
    """Say who belongs together in a fleet in which nobody drifts.

    Parameters
    ----------
    shape : {"dirichlet", "class-groups", "style-groups"}
        ``dirichlet``: every client has class shares of its own, so no partition is the true one;
        ``class-groups``: three groups that know other classes; ``style-groups``: a group at the
        base and one at the first concept of each family.
    client_ids : sequence of str
        Sorted; neighbours make a group.
    families : sequence of paths
        For ``style-groups``.

    Notes
    -----
    Labels mean the same in all groups, so one model for all is not wrong anywhere. The groups are
    those that the data were made from; whether to part them pays is what a comparison shows.

    Raises
    ------
    InvalidConfigError
        If the shape is unknown, there are fewer clients than groups, or styles without families.
    """
    if shape not in STANDING_SHAPES:
        raise InvalidConfigError(
            f"standing schedule {shape!r} is unknown, wanted one of {', '.join(STANDING_SHAPES)}"
        )
    if shape == "dirichlet":
        return Schedule(shape, tuple(client_ids), (), tells_groups=False)
    if shape == "class-groups":
        concepts = [Concept(f"classes-{number + 1}") for number in range(N_CLASS_GROUPS)]
    else:
        concepts = [BASE, *(path[0] for path in families if path)]
    if not 2 <= len(concepts) <= len(client_ids):
        raise InvalidConfigError(
            f"schedule {shape!r}: {len(concepts)} groups of {len(client_ids)} clients, "
            "wanted at least 2 groups, and as many clients"
        )
    groups = group_numbers(len(client_ids), len(concepts))
    starts = tuple((c, concepts[g]) for c, g in zip(client_ids, groups.tolist(), strict=True))
    return Schedule(shape, tuple(client_ids), (), starts=starts)


def group_numbers(n_clients: int, n_groups: int) -> NDArray[np.int64]:
    """Return the group of each client, shape (n_clients,): neighbours, the first groups larger."""
    sizes = [len(part) for part in np.array_split(np.arange(n_clients), n_groups)]
    return np.repeat(np.arange(n_groups), sizes).astype(np.int64)
