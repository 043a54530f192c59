from __future__ import annotations

import numpy as np
import pytest

from clma.config import preset_config
from clma.records import SealedUpdate, TensorSpec
from clma.round import columns_of
from clma.sweep.columns import Columns, Span, plan_columns
from clma.sweep.directions import MAX_COLUMNS, N_RUNS, cosines_to_middle, spread_columns
from tests.clma.shelf import Shelf

CONFIG = preset_config("test")
LARGE = plan_columns(
    [TensorSpec("a", "F32", (90_001,)), TensorSpec("b", "F32", (7,)), TensorSpec("c", "F32", (5,))],
    ["a", "c"],
)


def chosen(columns: Columns, seed: int = 0) -> list[int]:
    spans = spread_columns(columns, MAX_COLUMNS, seed=seed)
    return [column for span in spans for column in range(span.start, span.stop)]


def voters(shelf: Shelf, base: dict, models: list[dict]) -> list[SealedUpdate]:
    sent = shelf.put(base).sha256
    return [SealedUpdate(f"p{i}", sent, shelf.put(m), 1, False) for i, m in enumerate(models)]


def cosines(shelf: Shelf, updates: list[SealedUpdate]) -> np.ndarray:
    columns = columns_of(updates[0].tensors, shelf.open, CONFIG)
    return cosines_to_middle(updates, columns, shelf.open, seed=0)


@pytest.mark.parametrize("seed", range(20))
def test_every_stretch_of_a_large_model_is_looked_at(seed: int) -> None:
    columns = np.array(chosen(LARGE, seed))
    # Columns 90,001 to 90,007 are not selected; what is behind them counts as following.
    places = np.where(columns > 90_001, columns - 7, columns) * N_RUNS // 90_006
    assert np.bincount(places, minlength=N_RUNS).min() >= MAX_COLUMNS // N_RUNS // 2
    assert len(set(columns.tolist())) == len(columns) <= MAX_COLUMNS


def test_only_what_cohorting_looks_at_is_chosen() -> None:
    for seed in range(50):
        assert not set(chosen(LARGE, seed)) & set(range(90_001, 90_008))


def test_no_column_is_out_of_reach() -> None:
    columns = plan_columns([TensorSpec("w", "F32", (3 * N_RUNS,))])
    seen = {span.start for seed in range(60) for span in spread_columns(columns, N_RUNS, seed=seed)}
    assert seen == set(range(3 * N_RUNS))


def test_another_seed_looks_elsewhere() -> None:
    assert chosen(LARGE, 1) == chosen(LARGE, 1)
    assert chosen(LARGE, 1) != chosen(LARGE, 2)


def test_a_small_model_is_looked_at_in_full() -> None:
    small = plan_columns([TensorSpec("w", "F32", (MAX_COLUMNS,))])
    assert spread_columns(small, MAX_COLUMNS, seed=0) == [Span(0, MAX_COLUMNS)]


def test_cosines_are_those_of_whole_updates(shelf: Shelf) -> None:
    rng = np.random.default_rng(0)
    base, rows = rng.normal(size=300), rng.normal(0.5, 1, size=(6, 300))
    found = cosines(shelf, voters(shelf, {"w": base}, [{"w": row} for row in rows]))
    moved = rows - base
    middle = np.median(moved, axis=0)
    wanted = moved @ middle / np.linalg.norm(moved, axis=1) / np.linalg.norm(middle)
    np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_a_few_columns_tell_what_all_would(shelf: Shelf) -> None:
    rng = np.random.default_rng(0)
    trend = rng.normal(size=200_000)
    rows = [(sign * trend + rng.normal(size=trend.size)).astype(np.float32) for sign in (1,) * 5]
    rows.append((-trend).astype(np.float32))
    zeros = {"w": np.zeros(trend.size, np.float32)}
    found = cosines(shelf, voters(shelf, zeros, [{"w": row} for row in rows]))
    middle = np.median(rows, axis=0)
    wanted = [row @ middle / np.linalg.norm(row) / np.linalg.norm(middle) for row in rows]
    np.testing.assert_allclose(found, wanted, atol=0.03)


def test_every_update_is_measured_from_the_model_it_was_sent(shelf: Shelf) -> None:
    here = voters(shelf, {"w": [0.0, 0.0]}, [{"w": [1.0, 1.0]}] * 3)
    there = voters(shelf, {"w": [9.0, 9.0]}, [{"w": [8.0, 8.0]}])
    assert cosines(shelf, [*here, *there]).tolist() == [1.0, 1.0, 1.0, -1.0]


def test_statistics_of_normalisation_layers_do_not_count(shelf: Shelf) -> None:
    models = [{"w": [1.0], "bn.running_var": [500.0]}] * 4 + [
        {"w": [-1.0], "bn.running_var": [500.0]}
    ]
    found = cosines(shelf, voters(shelf, {"w": [0.0], "bn.running_var": [1.0]}, models))
    assert found.tolist() == [1, 1, 1, 1, -1]


def test_who_did_not_move_has_no_direction(shelf: Shelf) -> None:
    models = [{"w": [1.0]}, {"w": [1.0]}, {"w": [1.0]}, {"w": [0.0]}]
    assert cosines(shelf, voters(shelf, {"w": [0.0]}, models)).tolist() == [1, 1, 1, 0]


def test_where_most_did_not_move_nobody_has_one(shelf: Shelf) -> None:
    models = [{"w": [0.0]}] * 3 + [{"w": [-1.0]}]
    assert cosines(shelf, voters(shelf, {"w": [0.0]}, models)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("largest", [np.float32(3e38), np.float64(1e100)])
def test_the_largest_weights_have_a_direction(shelf: Shelf, largest: np.floating) -> None:
    models = [{"w": np.full(50, sign * largest)} for sign in (1, 1, 1, -1)]
    found = cosines(shelf, voters(shelf, {"w": np.zeros(50, largest.dtype)}, models))
    assert found.tolist() == [1, 1, 1, -1]
