from __future__ import annotations

import itertools

import pytest

from clma.errors import InvalidConfigError
from clma.simulation.families import derangements, families_of

CONDITIONS = ("b", "c")
CLASSES = (0, 1, 2, 3)


def _families(kind: str, shape: str = "stagger", **more: int):
    return families_of(kind, shape, CONDITIONS, 5, CLASSES, **more)


def test_four_classes_have_nine_derangements() -> None:
    found = derangements(CLASSES)

    assert len(found) == 9
    assert all(a != b for order in found for a, b in zip(order, CLASSES, strict=True))


def test_covariate_families_keep_the_labels() -> None:
    concepts = list(itertools.chain(*_families("covariate")))

    assert all(concept.relabelling is None for concept in concepts)


def test_one_moved_family_is_one_concept_to_go_to() -> None:
    assert [path[0].name for path in _families("covariate", n_moved=1)] == ["b"]


def test_concept_families_swap_different_classes_at_the_base() -> None:
    (a,), (b,) = _families("concept")

    assert a.relabelling == (1, 0, 2, 3, 4)
    assert b.relabelling == (0, 1, 3, 2, 4)
    assert a.condition == b.condition == "base"


def test_mixed_has_one_family_of_each_kind() -> None:
    moved, renamed = _families("mixed")

    assert moved[0].condition == "b"
    assert renamed[0].relabelling is not None


def test_repeated_labellings_are_eight_different_ones() -> None:
    concepts = list(itertools.chain(*_families("concept", "repeat")))

    assert len({concept.relabelling for concept in concepts}) == 8
    assert len({concept.name for concept in concepts}) == 8
    assert all(sorted(concept.relabelling or ()) == [0, 1, 2, 3, 4] for concept in concepts)


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match="'prior' is unknown, wanted one of covariate"):
        _families("prior")
