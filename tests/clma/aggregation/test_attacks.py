"""One and two attackers of eight against every rule; the same attacks take the plain mean along.

Bounds are in terms of the honest spread, the largest distance of an honest update from the honest
mean, which all attackers know: they send what is farthest from where the others go.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.config import preset_config
from tests.clma.aggregation.voters import model_of
from tests.clma.shelf import Shelf, one_cohort, run, update

Vectors = NDArray[np.float64]

N, N_COLUMNS = 8, 40
_RNG = np.random.default_rng(11)
TREND = 10 * (_direction := _RNG.normal(size=N_COLUMNS)) / np.linalg.norm(_direction)
HONEST = TREND + _RNG.normal(0, 0.1, (N, N_COLUMNS))
"""Eight updates that go 10 long the same way, each within about 0.7 of their mean."""

ATTACKS: dict[str, Callable[[Vectors], Vectors]] = {
    "sign_flip": lambda rows: -rows,
    "noise": lambda rows: np.random.default_rng(5).normal(0, 20, rows.shape),
    "scaled": lambda rows: 100 * rows,
    "scaled_back": lambda rows: -100 * rows,
    "constant": lambda rows: np.full_like(rows, 30.0),
}
SETTINGS = {"n_byzantine": 2, "trim_fraction": 0.25}
every_attack = pytest.mark.parametrize("attack", ATTACKS)
one_or_two = pytest.mark.parametrize("n_liars", [1, 2])


def attacked(attack: str, n_liars: int, n: int = N) -> tuple[Vectors, Vectors]:
    """Return all rows, whose last ones lie, and the honest ones."""
    rows = HONEST[:n].copy()
    rows[n - n_liars :] = ATTACKS[attack](rows[n - n_liars :])
    return rows, HONEST[: n - n_liars]


def spread(honest: Vectors) -> float:
    return float(np.linalg.norm(honest - honest.mean(axis=0), axis=1).max())


def harm(made: Vectors, honest: Vectors) -> float:
    """Return the distance from the honest mean, in honest spreads."""
    return float(np.linalg.norm(made - honest.mean(axis=0))) / spread(honest)


def most_of_geometric_median(share: float) -> float:
    return 2 * (1 - share) / (1 - 2 * share)


@every_attack
@one_or_two
def test_the_plain_mean_is_taken_along(shelf: Shelf, attack: str, n_liars: int) -> None:
    """Else none of the bounds below would say anything."""
    rows, honest = attacked(attack, n_liars)
    made = model_of(shelf, rows, method="weighted_mean")
    assert harm(made, honest) > most_of_geometric_median(n_liars / N)


@every_attack
@one_or_two
@pytest.mark.parametrize("method", ["median", "trimmed_mean", "robust"])
def test_every_parameter_stays_among_the_honest(
    shelf: Shelf, method: str, attack: str, n_liars: int
) -> None:
    rows, honest = attacked(attack, n_liars)
    made = model_of(shelf, rows, method=method, **SETTINGS)
    assert (honest.min(axis=0) <= made).all()
    assert (made <= honest.max(axis=0)).all()
    assert harm(made, honest) < 1


@every_attack
@one_or_two
def test_the_geometric_median_moves_by_its_bound_at_most(
    shelf: Shelf, attack: str, n_liars: int
) -> None:
    rows, honest = attacked(attack, n_liars)
    made = model_of(shelf, rows, method="geometric_median")
    assert harm(made, honest) <= most_of_geometric_median(n_liars / N)


@every_attack
@one_or_two
@pytest.mark.parametrize("n_selected", [1, 3])
def test_krum_selects_honest_updates(
    shelf: Shelf, attack: str, n_liars: int, n_selected: int
) -> None:
    rows, honest = attacked(attack, n_liars)
    made = model_of(shelf, rows, method="krum", n_selected=n_selected, **SETTINGS)
    assert harm(made, honest) <= 1 + 1e-12
    assert n_selected > 1 or made.tolist() in honest.tolist()


@every_attack
@one_or_two
def test_clipping_bounds_what_a_share_of_liars_can_do(
    shelf: Shelf, attack: str, n_liars: int
) -> None:
    """By their share of three honest lengths and of the honest mean, whatever they send."""
    rows, honest = attacked(attack, n_liars)
    made = model_of(shelf, rows, method="clipped_mean")
    mean = honest.mean(axis=0)
    longest = 3 * np.linalg.norm(honest, axis=1).max()
    most = n_liars / N * (longest + np.linalg.norm(mean))
    assert np.linalg.norm(made - mean) <= most
    if attack.startswith("scaled"):
        assert np.linalg.norm(model_of(shelf, rows, method="weighted_mean") - mean) > 10 * most


@one_or_two
@pytest.mark.parametrize("attack", ["sign_flip", "scaled_back"])
@pytest.mark.parametrize("method", ["weighted_mean", "clipped_mean"])
def test_who_goes_back_where_the_others_came_from_does_not_vote(
    shelf: Shelf, method: str, attack: str, n_liars: int
) -> None:
    rows, honest = attacked(attack, n_liars)
    made = night(shelf, rows, method=method)
    np.testing.assert_allclose(made, honest.mean(axis=0), rtol=1e-6)


@one_or_two
@pytest.mark.parametrize("attack", ["scaled", "constant"])
def test_who_goes_elsewhere_votes_and_is_shortened(shelf: Shelf, attack: str, n_liars: int) -> None:
    """A direction that the others did not take is no proof of a lie."""
    rows, _ = attacked(attack, n_liars)
    made = night(shelf, rows, method="clipped_mean")
    wanted = model_of(shelf, rows, method="clipped_mean")
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


def night(shelf: Shelf, rows: Vectors, **aggregation: str) -> Vectors:
    """Return the root cohort's model after a round of the product's preset."""
    base = shelf.put({"w": np.zeros(N_COLUMNS)}).sha256
    updates = [
        update(shelf, f"p{i}", row, base)  # type: ignore[arg-type]
        for i, row in enumerate(rows)
    ]
    state = one_cohort(base, [u.client_id for u in updates])
    outcome = run(shelf, state, updates, preset_config("test", aggregation=aggregation))
    return np.array(shelf.read(outcome.state.cohorts["c0"].model_digest))


@every_attack
@pytest.mark.parametrize("n", [3, 4, 5])
def test_small_cohorts_are_held_by_the_rule_that_their_number_allows(
    shelf: Shelf, attack: str, n: int
) -> None:
    rows, honest = attacked(attack, 1, n)
    made = model_of(shelf, rows, method="robust")
    assert (honest.min(axis=0) <= made).all()
    assert (made <= honest.max(axis=0)).all()


@every_attack
def test_of_two_the_harm_is_half_of_four_honest_lengths(shelf: Shelf, attack: str) -> None:
    """Nobody can tell who lies; the longer one is shortened to three times the other."""
    rows, honest = attacked(attack, 1, 2)
    made = model_of(shelf, rows, method="robust")
    assert np.linalg.norm(made - honest[0]) <= 2 * np.linalg.norm(honest[0]) * (1 + 1e-9)


@every_attack
def test_of_one_nothing_is_known(shelf: Shelf, attack: str) -> None:
    rows, _ = attacked(attack, 1, 1)
    assert model_of(shelf, rows, method="robust").tolist() == rows[0].tolist()
