"""The distance of FMCL: the hand-computed vectors, and laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from clma.cohorting.class_distances import class_distances
from clma.errors import InvalidUpdateError, ShapeMismatchError
from clma.signatures.signature import Signature


def signed(means: Mapping[int, tuple[list[float], float]], encoder: str = "vit") -> Signature:
    arrays = {
        "classes": np.array(sorted(means)),
        "means": np.array([means[c][0] for c in sorted(means)], np.float32),
        "shares": np.array([means[c][1] for c in sorted(means)]),
    }
    return Signature("fmcl", arrays, encoder)


FOUR = {
    "a": signed({0: ([1, 0], 0.5), 1: ([0, 1], 0.5)}),
    "b": signed({0: ([0.6, 0.8], 0.2), 1: ([0, 1], 0.8)}),
    "c": signed({1: ([0.6, 0.8], 0.1), 2: ([1, 0], 0.9)}),
    "d": signed({2: ([0, 1], 1.0)}),
}


def upper(clients: Mapping[str, Signature], **settings: Any) -> list[float]:
    """Distances of ab, ac, ad, bc, bd, cd."""
    found = class_distances(clients, **{"center": "none", **settings}).distances
    return found[np.triu_indices(len(found), 1)].tolist()


def fleet(
    rng: np.random.Generator, n_clients: int = 6, n_features: int = 5
) -> dict[str, Signature]:
    clients = {}
    for k in range(n_clients):
        classes = sorted(rng.choice(4, rng.integers(1, 5), replace=False))
        shares = rng.dirichlet(np.ones(len(classes)))
        means = rng.normal(size=(len(classes), 5)).tolist()
        clients[f"p{k}"] = signed(dict(zip(classes, zip(means, shares, strict=True), strict=True)))
    return clients


@pytest.mark.parametrize(
    ("overlap", "percentile", "wanted"),
    [
        ("sum", 95, [0.08, 0.02, 0.777, 0.02, 0.777, 0.9]),
        ("sum", 99, [0.08, 0.02, 0.8754, 0.02, 0.8754, 0.9]),
        ("none", 95, [0.114286, 0.2, 0.88, 0.2, 0.88, 1.0]),
        ("none", 99, [0.114286, 0.2, 0.976, 0.2, 0.976, 1.0]),
        ("penalize", 95, [0.163265, 2, 2, 2, 2, 1.111111]),
        ("penalize", 99, [0.163265, 2, 2, 2, 2, 1.111111]),
        ("additive", 100, [0.414286, 1.1, 2, 1.1, 2, 1.1]),
    ],
)
def test_four_clients_worked_out_by_hand(
    overlap: str, percentile: float, wanted: list[float]
) -> None:
    got = upper(FOUR, overlap=overlap, percentile=percentile)

    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_overlap_is_what_two_clients_have_in_common() -> None:
    overlaps = class_distances(FOUR).overlaps

    np.testing.assert_allclose(overlaps[0], [1, 0.7, 0.1, 0])


@pytest.mark.parametrize("overlap", ["none", "sum", "penalize", "additive"])
@pytest.mark.parametrize("center", ["none", "global", "zscore"])
def test_order_of_clients_changes_nothing(overlap: Any, center: Any) -> None:
    clients = fleet(np.random.default_rng(1))
    turned = dict(reversed(clients.items()))

    one = class_distances(clients, overlap=overlap, center=center).distances
    two = class_distances(turned, overlap=overlap, center=center).distances

    np.testing.assert_allclose(one, two[::-1, ::-1], atol=1e-12)


@pytest.mark.parametrize("overlap", ["none", "sum", "penalize", "additive"])
def test_scale_of_embeddings_changes_nothing(overlap: Any) -> None:
    clients = fleet(np.random.default_rng(2))
    scaled = {
        c: Signature("fmcl", {**s.arrays, "means": 7 * s.arrays["means"]}, s.encoder)
        for c, s in clients.items()
    }

    for center in ("none", "global", "zscore"):
        np.testing.assert_allclose(
            upper(clients, overlap=overlap, center=center),
            upper(scaled, overlap=overlap, center=center),
            atol=1e-6,
        )


@pytest.mark.parametrize("overlap", ["none", "sum", "penalize", "additive"])
@pytest.mark.parametrize("center", ["none", "global", "zscore"])
def test_equal_signatures_are_at_distance_zero(overlap: Any, center: Any) -> None:
    clients = fleet(np.random.default_rng(3))
    clients["twin"] = clients["p0"]

    found = class_distances(clients, overlap=overlap, center=center).distances

    assert found[0, -1] == pytest.approx(0, abs=1e-12)
    assert (np.diag(found) == 0).all()


def test_full_overlap_is_not_penalized() -> None:
    clients = {"a": FOUR["d"], "b": signed({2: ([1, 1], 1.0)})}

    assert upper(clients, overlap="penalize") == upper(clients, overlap="none")


def test_additive_distance_is_bounded() -> None:
    clients = {
        "a": signed({0: ([1, 0], 0.999), 1: ([1, 0], 0.001)}),
        "b": signed({0: ([-1, 0], 0.001), 2: ([1, 0], 0.999)}),
    }

    assert upper(clients, overlap="additive") == pytest.approx([2.999])


def test_offset_common_to_all_embeddings_disappears_by_centring() -> None:
    clients = fleet(np.random.default_rng(4))
    moved = {
        c: Signature("fmcl", {**s.arrays, "means": s.arrays["means"] + 50}, s.encoder)
        for c, s in clients.items()
    }

    np.testing.assert_allclose(
        upper(clients, center="global"), upper(moved, center="global"), atol=1e-4
    )


def test_unit_of_a_feature_disappears_by_zscore() -> None:
    clients = fleet(np.random.default_rng(5))
    unit = np.array([1, 1000, 1, 1, 0.001], np.float32)
    changed = {
        c: Signature("fmcl", {**s.arrays, "means": s.arrays["means"] * unit}, s.encoder)
        for c, s in clients.items()
    }

    np.testing.assert_allclose(
        upper(clients, center="zscore"), upper(changed, center="zscore"), atol=1e-5
    )


def test_newcomer_does_not_move_the_centre_of_the_others() -> None:
    clients = fleet(np.random.default_rng(6))
    far = {**clients, "new": signed({0: ([900, 0, 0, 0, 0], 1.0)})}

    before = class_distances(clients).distances
    after = class_distances(far, centre_on=set(clients), percentile=100).distances

    shared = class_distances(clients).overlaps > 0
    np.testing.assert_allclose(before[shared], after[:-1, :-1][shared])


def test_clients_without_any_shared_class_are_all_equally_far() -> None:
    alone = {f"p{k}": signed({k: ([1, k], 1.0)}) for k in range(4)}

    found = class_distances(alone)

    assert len(set(found.distances[np.triu_indices(4, 1)])) == 1
    assert not found.has_signal


def test_groups_with_labels_of_their_own_are_farther_apart_than_their_members() -> None:
    rng = np.random.default_rng(8)
    clients = {
        f"p{k}": signed({k % 3: ((np.eye(4)[k % 3] + rng.normal(0, 0.1, 4)).tolist(), 1.0)})
        for k in range(9)
    }

    distances = class_distances(clients).distances

    same = np.equal.outer(np.arange(9) % 3, np.arange(9) % 3)
    assert distances[~same].min() > 1 > distances[same].max()


def test_signature_of_another_encoder_is_refused() -> None:
    clients = {**FOUR, "e": signed({0: ([1, 0], 1.0)}, encoder="pixels")}

    with pytest.raises(InvalidUpdateError, match=r"'e': .* encoder 'pixels', others with 'vit'"):
        class_distances(clients)


def test_signature_of_another_length_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="'e': signature has 3 features, others 2"):
        class_distances({**FOUR, "e": signed({0: ([1, 0, 0], 1.0)})})


def test_damaged_signature_is_refused_by_client() -> None:
    with pytest.raises(InvalidUpdateError, match="client 'e': class 4: the mean embedding is zero"):
        class_distances({**FOUR, "e": signed({4: ([0, 0], 1.0)})})


def test_nobody_has_no_distances() -> None:
    assert class_distances({}).distances.shape == (0, 0)


def test_signatures_are_not_modified() -> None:
    clients = fleet(np.random.default_rng(7))
    before = {c: s.arrays["means"].copy() for c, s in clients.items()}

    class_distances(clients, center="zscore")

    assert all((clients[c].arrays["means"] == before[c]).all() for c in clients)
