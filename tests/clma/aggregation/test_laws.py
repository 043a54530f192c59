"""Laws that all aggregation rules keep, or all that promise to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clma.aggregation import AGGREGATORS
from clma.parameters.tensor_file import serialize_tensors
from clma.records import TensorSpec
from tests.clma.aggregation.test_weighted_mean import LARGEST, average_files
from tests.clma.aggregation.voters import model_file, model_of
from tests.clma.shelf import Shelf

METHODS = [*AGGREGATORS, "robust"]
ROBUST = ["median", "trimmed_mean", "geometric_median", "krum", "robust"]
SETTINGS = {"n_byzantine": 2, "trim_fraction": 0.3}
"""For seven voters, two of whom may lie."""

ROWS = np.random.default_rng(7).normal(size=(7, 5))
HONEST = ROWS[:5]

every_rule = pytest.mark.parametrize("method", METHODS)


@every_rule
def test_who_sent_which_changes_nothing(shelf: Shelf, method: str) -> None:
    order = np.random.default_rng(0).permutation(7)
    made = model_of(shelf, ROWS, method=method, **SETTINGS)
    other = model_of(shelf, ROWS[order], method=method, **SETTINGS)
    np.testing.assert_allclose(other, made, rtol=0, atol=1e-12)


@every_rule
def test_a_shift_of_all_shifts_the_model(shelf: Shelf, method: str) -> None:
    shift = np.array([3.0, -8.0, 0.5, 100.0, 0.0])
    made = model_of(shelf, ROWS, method=method, **SETTINGS)
    shifted = model_of(shelf, ROWS + shift, base=shift, method=method, **SETTINGS)
    np.testing.assert_allclose(shifted, made + shift, rtol=0, atol=1e-11)


@every_rule
@pytest.mark.parametrize("factor", [1e-20, -3.0, 1e20])
def test_other_units_make_the_model_in_those_units(
    shelf: Shelf, method: str, factor: float
) -> None:
    made = model_of(shelf, ROWS, method=method, **SETTINGS)
    scaled = model_of(shelf, ROWS * factor, method=method, **SETTINGS)
    np.testing.assert_allclose(scaled / factor, made, rtol=0, atol=1e-12)


@every_rule
@pytest.mark.parametrize("n", [5, 7, 8])
def test_voters_that_agree_are_followed(shelf: Shelf, method: str, n: int) -> None:
    made = model_of(shelf, np.repeat(ROWS[:1], n, axis=0), method=method, n_byzantine=1)
    np.testing.assert_allclose(made, ROWS[0], rtol=1e-15)


@pytest.mark.parametrize("method", ["median", "trimmed_mean", "krum"])
def test_voters_that_agree_are_followed_to_the_bit(shelf: Shelf, method: str) -> None:
    """The sum of ten equal numbers, divided by ten, is not always that number."""
    row = np.random.default_rng(0).normal(size=500)
    assert model_of(shelf, np.repeat(row[None], 10, axis=0), method=method).tolist() == row.tolist()


@pytest.mark.parametrize("method", [m for m in METHODS if m != "krum"])
def test_a_single_voter_passes_through(shelf: Shelf, method: str) -> None:
    assert model_of(shelf, ROWS[:1], method=method).tolist() == ROWS[0].tolist()


@every_rule
def test_equal_numbers_of_examples_are_equal_weights(shelf: Shelf, method: str) -> None:
    of_seven = model_of(shelf, ROWS, weights=[7] * 7, method=method, **SETTINGS)
    equal = model_of(
        shelf, ROWS, weights=[1, 2, 3, 4, 5, 6, 0], method=method, weight="equal", **SETTINGS
    )
    assert of_seven.tolist() == equal.tolist()


@every_rule
def test_a_voter_without_examples_is_absent(shelf: Shelf, method: str) -> None:
    liar = np.full((1, 5), 1e6)
    rows, weights = np.concatenate([ROWS, liar]), [1, 2, 3, 4, 5, 6, 7]
    made = model_of(shelf, rows, weights=[*weights, 0], method=method, **SETTINGS)
    assert (
        made.tolist() == model_of(shelf, ROWS, weights=weights, method=method, **SETTINGS).tolist()
    )


@pytest.mark.parametrize("method", ROBUST)
@pytest.mark.parametrize("size", [np.float32(1e6), np.float32(1e38), np.float64(-1e100)])
def test_liars_do_not_take_the_model_along(
    shelf: Shelf, method: str, size: np.floating[Any]
) -> None:
    rows = np.concatenate([HONEST, np.full((2, 5), size)]).astype(size.dtype)
    made = model_of(shelf, rows, method=method, **SETTINGS)
    # What the geometric median of a share of 2 / 7 of liars is held to; the others are closer.
    centre = HONEST.mean(axis=0)
    radius = np.linalg.norm(HONEST - centre, axis=1).max()
    assert np.linalg.norm(made - centre) <= 2 * (5 / 7) / (1 - 2 * 2 / 7) * radius


@pytest.mark.parametrize("method", ["median", "trimmed_mean", "krum", "robust"])
def test_liars_on_either_side_leave_the_model_among_the_honest(shelf: Shelf, method: str) -> None:
    liars = np.array([np.full(5, 1e6), np.full(5, -1e6)])
    made = model_of(shelf, np.concatenate([HONEST, liars]), method=method, **SETTINGS)
    assert (HONEST.min(axis=0) <= made).all()
    assert (made <= HONEST.max(axis=0)).all()


@pytest.mark.parametrize("method", ROBUST)
@pytest.mark.parametrize("part", ["w", "bn.running_var"])
def test_no_part_of_the_model_is_a_way_in(shelf: Shelf, method: str, part: str) -> None:
    """Nor are tensors that cohorting does not look at."""
    models = [{"w": row, "bn.running_var": 10 + row} for row in ROWS]
    models[0] = {**models[0], part: models[0][part] + 1e6}
    made = model_file(shelf, models, method=method, **SETTINGS)
    assert np.abs(shelf.read(made.sha256, part)).max() < 20


@every_rule
@pytest.mark.parametrize("dtype", sorted(LARGEST))
def test_the_largest_numbers_make_no_infinity(shelf: Shelf, method: str, dtype: str) -> None:
    specs = [TensorSpec("w", dtype, (1,))]
    digest = shelf.save(serialize_tensors({"w": np.array([-LARGEST[dtype]])}, specs))
    made = average_files(shelf, [digest] * 7, [1, 2, 3, 4, 5, 6, 7], digest, method=method)
    assert shelf.read(made.sha256) == pytest.approx([-LARGEST[dtype]], rel=1e-12)


@every_rule
@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32"])
def test_the_model_keeps_the_dtype(shelf: Shelf, method: str, dtype: str) -> None:
    specs = [TensorSpec("w", dtype, (5,))]
    digests = [shelf.save(serialize_tensors({"w": row}, specs)) for row in ROWS]
    made = average_files(shelf, digests, [1] * 7, digests[0], method=method)
    with shelf.open(made) as file:
        assert file.spec("w").dtype == dtype
        wanted = model_of(shelf, ROWS, base=ROWS[0], method=method)
        np.testing.assert_allclose(file.read("w"), wanted, atol=0.02)
