from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.cluster.hierarchy import cut_tree, linkage

from clma.cohorting.tree_cuts import cut_from_top


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@pytest.mark.parametrize("n", [3, 7, 40])
@pytest.mark.parametrize("decimals", [8, 0])
@pytest.mark.parametrize("seed", range(10))
def test_groupings_are_those_of_scipy(n: int, decimals: int, seed: int) -> None:
    """Also where many merges are at one distance."""
    points = np.random.default_rng(seed).normal(size=(n, 2)).round(decimals)
    tree = linkage(points, method="average")
    theirs = cut_tree(tree, n_clusters=range(2, n)).T
    ours = cut_from_top(tree, max_groups=n - 1)
    assert [partition(row) for row in ours] == [partition(row) for row in theirs]


def test_every_cut_splits_one_group_in_two() -> None:
    tree = linkage(np.random.default_rng(0).normal(size=(20, 2)), method="average")
    cuts = cut_from_top(tree, max_groups=20)
    assert [row.max() + 1 for row in cuts] == list(range(2, 21))
    for coarse, fine in pairwise(cuts):
        assert len(partition(coarse) & partition(fine)) == len(partition(coarse)) - 1


def test_one_group_is_no_cut() -> None:
    assert cut_from_top(linkage(np.eye(3), method="average"), max_groups=1).shape == (0, 3)
