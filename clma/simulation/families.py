"""The kinds of drift: other conditions, other labellings, or one family of each.

Examples
--------
>>> [path[0].name for path in families_of("mixed", "stagger", ("b", "c"), 4, (0, 1, 2, 3))]
['b', 'swap-a']
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from clma.errors import InvalidConfigError
from clma.simulation.schedule import EVENT_ROUNDS, Concept

__all__ = ["KINDS", "derangements", "families_of", "rotating_families"]

KINDS = ("covariate", "concept", "mixed")


def families_of(
    kind: str,
    shape: str,
    conditions: Sequence[str],
    n_classes: int,
    relabelled: Sequence[int],
    *,
    n_moved: int = 2,
) -> tuple[tuple[Concept, ...], ...]:
    """Return the families of a kind of drift, each as the path that it takes.

    Parameters
    ----------
    kind : {"covariate", "concept", "mixed"}
        ``covariate``: families move to other conditions; ``concept``: two families get other
        labels; ``mixed``: the first family of each.
    shape : str
        With ``repeat`` a labelling family gets another derangement at each event, otherwise family
        a swaps the first two classes of `relabelled` and family b the next two.
    conditions : sequence of str
        Conditions to move to; family k starts its path at the k-th.
    n_classes : int
    relabelled : sequence of int
        At least four class indices whose names may change.
    n_moved : int
        Families of ``covariate``.

    Raises
    ------
    InvalidConfigError
        If the kind is unknown.
    """
    if kind not in KINDS:
        raise InvalidConfigError(
            f"drift kind {kind!r} is unknown, wanted one of {', '.join(KINDS)}"
        )
    moved = tuple(_moves(conditions, start) for start in range(n_moved))
    renamed = tuple(
        _new_labellings(n_classes, relabelled, family)
        if shape == "repeat"
        else (_swap(n_classes, relabelled, family),)
        for family in range(2)
    )
    if kind == "covariate":
        return moved
    return renamed if kind == "concept" else (moved[0], renamed[0])


def rotating_families(
    kind: str, shape: str, conditions: Sequence[str], n_classes: int
) -> tuple[tuple[Concept, ...], ...]:
    """Return the families of a kind of drift where all labels rotate, in opposite directions.

    Parameters
    ----------
    kind : {"covariate", "concept", "mixed"}
        As in `families_of`.
    shape : str
        With ``repeat`` families a and b rotate by +1 and -1 more at each event, otherwise by +3
        and -3 once.
    conditions : sequence of str
        Conditions to move to, at least two for ``covariate``, one for ``mixed``.
    n_classes : int, >= 7
        With fewer, +3 and -3 are one rotation.

    Raises
    ------
    InvalidConfigError
        If the kind is unknown or there are too few classes.
    """
    if kind not in KINDS or n_classes < 7:
        raise InvalidConfigError(
            f"drift kind {kind!r} of {n_classes} classes, "
            f"wanted one of {', '.join(KINDS)} and at least 7 classes"
        )
    steps = range(1, len(EVENT_ROUNDS) + 1) if shape == "repeat" else (3,)
    rotated = tuple(tuple(_rotation(n_classes, sign * n) for n in steps) for sign in (1, -1))
    if kind == "concept":
        return rotated
    moved = tuple(_moves(conditions, start) for start in range(min(2, len(conditions))))
    return moved if kind == "covariate" else (moved[0], rotated[0])


def derangements(classes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the orders of `classes` in which none stands in its own place, sorted."""
    orders = itertools.permutations(classes)
    return [o for o in orders if all(a != b for a, b in zip(o, classes, strict=True))]


def _moves(conditions: Sequence[str], start: int) -> tuple[Concept, ...]:
    turned = [*conditions[start:], *conditions[:start]]
    return tuple(Concept(condition, condition) for condition in turned)


def _swap(n_classes: int, relabelled: Sequence[int], family: int) -> Concept:
    a, b = relabelled[2 * family], relabelled[2 * family + 1]
    order = {a: b, b: a}
    names = tuple(order.get(c, c) for c in range(n_classes))
    return Concept(f"swap-{'ab'[family]}", relabelling=names)


def _rotation(n_classes: int, steps: int) -> Concept:
    # Named by the shorter way round: two families that meet at one labelling share its name.
    shortest = (steps + (n_classes - 1) // 2) % n_classes - (n_classes - 1) // 2
    names = tuple((c + steps) % n_classes for c in range(n_classes))
    return Concept(f"labels{shortest:+d}", relabelling=names)


def _new_labellings(n_classes: int, relabelled: Sequence[int], family: int) -> tuple[Concept, ...]:
    ordered = sorted(relabelled)
    chosen = derangements(ordered)[family::2][: len(EVENT_ROUNDS)]
    concepts = []
    for number, order in enumerate(chosen, start=1):
        renamed = dict(zip(ordered, order, strict=True))
        names = tuple(renamed.get(c, c) for c in range(n_classes))
        concepts.append(Concept(f"labels-{'ab'[family]}{number}", relabelling=names))
    return tuple(concepts)
