"""Ageing sensors; the file is not in the repository."""

from __future__ import annotations

import numpy as np
import pytest

from clma.simulation import Fleet
from clma.simulation.gas import BATCHES, FILE_NAME, gas_fleet
from clma.simulation.shards import ShardSource
from tests.clma.simulation.recorded import DATA_DIR, needs

DATA = DATA_DIR / "gas_drift"

pytestmark = needs(f"gas_drift/{FILE_NAME}")


def _fleet(*, half_late: bool = False, seed: int = 0, skew: float | None = None) -> Fleet:
    return gas_fleet(DATA, seed, half_late=half_late, skew=skew)


def _training_rows(source: ShardSource, condition: str) -> list[np.ndarray]:
    return [source.shards[f"plant-{n:02d}", condition] for n in range(1, 11)]


def _source(**settings: float) -> ShardSource:
    source = _fleet(**settings).source
    assert isinstance(source, ShardSource)
    return source


def test_batches_come_in_order_of_time_two_rounds_each() -> None:
    fleet = _fleet()

    found = [fleet.concept("plant-01", r) for r in range(1, fleet.default_rounds + 1)]

    wanted = ["base", *(f"batch-{batch}" for batch in BATCHES[1:])]
    assert found == [name for name in wanted for _ in range(2)]


def test_all_sites_age_together_unless_half_of_them_are_late() -> None:
    together, late = _fleet(), _fleet(half_late=True)

    for round_num in range(1, 17):
        assert len({together.concept(c, round_num) for c in together.client_ids}) == 1
    assert {late.concept(c, 6) for c in late.client_ids[:5]} == {"batch-3"}
    assert {late.concept(c, 6) for c in late.client_ids[5:]} == {"batch-2"}


def test_sites_have_no_row_in_common_with_each_other_or_the_test() -> None:
    source = _source()

    rows = np.concatenate([*source.shards.values(), *source.held_out_rows.values()])

    assert sorted(rows.tolist()) == list(range(6697))


def test_held_out_rows_are_thirty_percent_of_each_batch() -> None:
    source = _source()

    held_out = np.array([len(source.held_out_rows[c]) for c in ("base", *BATCHES[1:])])

    recorded = np.array([445, 1244, 1586, 161, 197, 2300, 294, 470])
    np.testing.assert_allclose(held_out, 0.3 * recorded, atol=3)


def test_test_is_the_batch_that_the_site_is_at() -> None:
    fleet = _fleet(half_late=True)

    now, behind = (fleet.test_windows(c, 3)[1] for c in ("plant-01", "plant-10"))

    assert len(now) == pytest.approx(0.3 * 1244, abs=3)
    assert len(behind) == pytest.approx(0.3 * 445, abs=3)


def test_two_rounds_of_a_batch_are_different_draws() -> None:
    fleet = _fleet()

    (one, _), (two, _) = (fleet.training_windows("plant-01", r) for r in (3, 4))

    rows = [{row.tobytes() for row in drawn} for drawn in (one, two)]
    assert one.shape[1:] == (128,)
    assert 0 < len(rows[0] & rows[1]) < len(one)


def test_scale_is_that_of_the_first_batch_and_later_ones_leave_it() -> None:
    source = _source()
    inputs = np.sinh(source.inputs.astype(np.float64))

    first, last = (inputs[np.concatenate(_training_rows(source, c))] for c in ("base", "9"))

    np.testing.assert_allclose(first.mean(axis=0), 0.0, atol=1e-3)
    assert np.abs(last.mean(axis=0)).mean() > 0.5


def test_skewed_sites_differ_in_their_gases_and_have_as_many_rows() -> None:
    source = _source(skew=0.5)

    owned = [source.labels[rows] for rows in _training_rows(source, "base")]
    counts = np.array([np.bincount(labels, minlength=6) for labels in owned])

    assert set(counts.sum(axis=1)) == {31}
    assert np.ptp(counts, axis=0).min() >= 5


def test_seed_decides_the_split() -> None:
    one, same, other = (_source(seed=seed).held_out_rows["base"] for seed in (1, 1, 2))

    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
