"""The fleets of the benchmark are what their kinds say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.onboarding import (
    ENCODERS,
    KINDS,
    N_CLIENTS,
    draw_fleet,
    global_maximum,
    group_fleet,
    sign_fleet,
    time_scale,
)
from clma.cohorting.automatic_k import choose_groups

LABELS = np.arange(100) % 10
IMAGES = np.eye(64)[LABELS].reshape(-1, 8, 8)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_clients_of_a_group_have_its_labels(kind) -> None:  # type: ignore[no-untyped-def]
    fleet = draw_fleet(kind, IMAGES, LABELS, np.random.default_rng(0))

    n_labels = kind.n_labels or (4 if kind.disjoint else 10)
    assert len(fleet) == N_CLIENTS
    assert all(len(set(labels)) <= n_labels for _, labels in fleet)


def test_disjoint_label_sets_are_found() -> None:
    kind = next(k for k in KINDS if k.name == "three disjoint label sets")
    fleet = draw_fleet(kind, IMAGES, LABELS, np.random.default_rng(0))

    choice = group_fleet(sign_fleet(fleet, ENCODERS["pixels"]), kind, {})

    assert choice.labels == tuple(k % 3 for k in range(N_CLIENTS))


def test_global_maximum_is_that_of_the_window() -> None:
    apart = 1 - np.kron(np.eye(3), np.ones((3, 3)))

    assert global_maximum(choose_groups(apart)) == 3


def test_scale_finds_the_kinds_it_made() -> None:
    assert time_scale(40, 3, 32).endswith("; 5 groups")
