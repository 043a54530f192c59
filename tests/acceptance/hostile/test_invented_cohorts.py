"""Large models, on which every test of significance is significant: cohorts come of no noise.

A fleet of twelve flagged plants: each moved from the common model by its family's shift, and by
noise of its own. Sizes are Euclidean norms, in units of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from clma.records import ClientStatus, SealedUpdate
from clma.round import RoundOutcome
from tests.clma.shelf import Shelf, one_cohort, run

IDS = [f"p{i:02d}" for i in range(12)]
N_SEEDS = 20
NOISE = 0.01
"""Of one parameter; the parameters have standard deviation 1."""


def direction(rng: np.random.Generator, n_parameters: int) -> NDArray[np.float64]:
    """Return a random vector as long as the noise."""
    return NOISE * rng.normal(size=n_parameters)


def night(
    folder: Path, shifts: Sequence[NDArray[np.float64] | float], seed: int, *, n_parameters: int
) -> RoundOutcome:
    """Return what becomes of twelve flagged plants that moved by their shifts and by noise."""
    folder.mkdir()
    shelf = Shelf(folder)
    rng = np.random.default_rng([seed, 1])
    start = rng.normal(size=n_parameters)
    base = shelf.put({"w": start.astype(np.float32)}).sha256
    updates = [
        SealedUpdate(c, base, shelf.put({"w": moved.astype(np.float32)}), 10, drift_flag=True)
        for c, moved in zip(
            IDS, (start + s + direction(rng, n_parameters) for s in shifts), strict=True
        )
    ]
    return run(shelf, one_cohort(base, IDS), updates)


def families(outcome: RoundOutcome) -> list[tuple[str, ...]]:
    """Return the members of every cohort that the night founded."""
    return [outcome.state.members(c) for c in outcome.state.cohorts if c != "c0"]


def rate_of_one_family(folder: Path, size: float, seeds: range, n_parameters: int) -> float:
    """Return how often plants that drifted one way became one cohort."""
    n_right = 0
    for seed in seeds:
        shift = size * direction(np.random.default_rng([seed, 2]), n_parameters)
        outcome = night(folder / str(seed), [shift] * 12, seed, n_parameters=n_parameters)
        n_right += families(outcome) == [tuple(IDS)]
    return n_right / len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(1.0, marks=pytest.mark.chaos), 3.0])
def test_plants_that_drifted_one_way_are_one_cohort(tmp_path: Path, size: float) -> None:
    assert rate_of_one_family(tmp_path, size, range(N_SEEDS), 100_000) >= 0.95


@pytest.mark.chaos
@pytest.mark.slow
def test_a_million_parameters_split_nobody_either(tmp_path: Path) -> None:
    assert rate_of_one_family(tmp_path, 1.0, range(3), 1_000_000) == 1.0


@pytest.mark.slow
def test_flags_without_a_shift_found_no_cohort(tmp_path: Path) -> None:
    """Twelve that only rustle wait for a night, on the model that they have."""
    for seed in range(N_SEEDS):
        outcome = night(tmp_path / str(seed), [0.0] * 12, seed, n_parameters=100_000)

        assert families(outcome) == []
        assert {c.status for c in outcome.state.clients.values()} == {ClientStatus.QUARANTINED}
        assert len({c.serving_digest for c in outcome.state.clients.values()}) == 1


@pytest.mark.slow
def test_two_families_three_times_the_noise_apart_are_told_apart(tmp_path: Path) -> None:
    """At right angles, as drifts of two kinds are; members alternate."""
    n_right = 0
    for seed in range(N_SEEDS):
        rng = np.random.default_rng([seed, 2])
        shifts = [3 / np.sqrt(2) * direction(rng, 100_000) for _ in range(2)]
        outcome = night(tmp_path / str(seed), shifts * 6, seed, n_parameters=100_000)
        n_right += families(outcome) == [tuple(IDS[0::2]), tuple(IDS[1::2])]
    assert n_right / N_SEEDS >= 0.95


def test_a_shift_that_is_only_significant_splits_nobody(tmp_path: Path) -> None:
    """All parameters up by a twentieth of their spread: p is nothing, the effect as well."""
    outcome = night(tmp_path / "night", [0.05] * 12, 0, n_parameters=100_000)

    start = np.random.default_rng([0, 1]).normal(size=100_000)
    assert ks_2samp(start, start + 0.05).pvalue < 1e-10
    assert families(outcome) == [tuple(IDS)]
    assert all(abs(row.ks_statistic or 1) < 0.05 for row in outcome.decision.cohorting)
