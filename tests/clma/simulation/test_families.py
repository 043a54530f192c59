from __future__ import annotations

import itertools

import pytest

from clma.errors import InvalidConfigError
from clma.simulation.families import derangements, families_of, rotating_families

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


def test_rotations_go_opposite_ways_by_three() -> None:
    (a,), (b,) = rotating_families("concept", "stagger", (), 10)

    assert (a.name, b.name) == ("labels+3", "labels-3")
    assert a.relabelling == (3, 4, 5, 6, 7, 8, 9, 0, 1, 2)
    assert [a.relabelling[c] for c in b.relabelling or ()] == list(range(10))


def test_repeated_rotations_accumulate_by_one() -> None:
    a, b = rotating_families("concept", "repeat", (), 10)

    assert [concept.name for concept in a] == [f"labels+{n}" for n in (1, 2, 3, 4)]
    assert [(concept.relabelling or ())[0] for concept in b] == [9, 8, 7, 6]


@pytest.mark.parametrize("n_classes", [7, 8, 9, 10, 100])
def test_rotations_of_one_name_are_one_labelling(n_classes: int) -> None:
    named: dict[str, set[tuple[int, ...] | None]] = {}
    labelled: dict[tuple[int, ...] | None, set[str]] = {}
    for shape in ("stagger", "repeat"):
        for concept in itertools.chain(*rotating_families("concept", shape, (), n_classes)):
            named.setdefault(concept.name, set()).add(concept.relabelling)
            labelled.setdefault(concept.relabelling, set()).add(concept.name)

    assert {len(found) for found in (*named.values(), *labelled.values())} == {1}


def test_rotating_kinds_have_two_families_each() -> None:
    covariate, mixed = (
        rotating_families(kind, "stagger", CONDITIONS, 10) for kind in ("covariate", "mixed")
    )

    assert [path[0].condition for path in covariate] == ["b", "c"]
    assert [path[0].name for path in mixed] == ["b", "labels+3"]


@pytest.mark.parametrize(("kind", "n_classes"), [("prior", 10), ("concept", 6)])
def test_rotations_that_cannot_be_told_apart_are_refused(kind: str, n_classes: int) -> None:
    with pytest.raises(InvalidConfigError, match="wanted one of covariate, concept, mixed and at"):
        rotating_families(kind, "stagger", CONDITIONS, n_classes)
