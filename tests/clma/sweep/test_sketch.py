"""Short random projections tell directions apart."""

from __future__ import annotations

import numpy as np
import pytest

from clma.records import TensorSpec
from clma.sweep.columns import BLOCK, MIN_BLOCKS, Span, plan_columns
from clma.sweep.inner_products import inner_products
from clma.sweep.means import Sweep
from clma.sweep.sketch import Signs, gram_of_sketches, signs_of_block
from clma.sweep.sums import added
from tests.clma.shelf import Shelf

N_FEATURES = 256


def test_signs_follow_from_the_seed_alone() -> None:
    one, again = (signs_of_block(seed=1, block=2, n_features=64) for _ in range(2))
    assert (one == again).all()
    assert (one != signs_of_block(seed=2, block=2, n_features=64)).mean() == pytest.approx(
        0.5, 0.02
    )
    assert (one != signs_of_block(seed=1, block=3, n_features=64)).mean() == pytest.approx(
        0.5, 0.02
    )


def test_parts_of_a_block_add_up_to_the_whole() -> None:
    values = np.random.default_rng(0).normal(size=(3, 1000))
    whole = Signs(0, N_FEATURES).project(values, Span(BLOCK, BLOCK + 1000))
    parts = [
        Signs(0, N_FEATURES).project(values[:, a:b], Span(BLOCK + a, BLOCK + b))
        for a, b in ((0, 300), (300, 1000))
    ]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-12, atol=1e-12)


def test_gram_is_exact_on_the_diagonal_and_estimates_cosines() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 3000)) + rng.normal(size=3000)
    sketches = Signs(7, N_FEATURES).project(values, Span(0, 3000))
    exact = values @ values.T

    gram = gram_of_sketches(sketches, np.diag(exact))

    lengths = np.sqrt(np.diag(exact))
    assert (np.diag(gram) == np.diag(exact)).all()
    errors = (gram - exact) / np.outer(lengths, lengths)
    assert np.abs(errors).max() < 6 / np.sqrt(N_FEATURES)
    assert errors.std() < 1.5 / np.sqrt(N_FEATURES)


def test_client_that_did_not_move_has_products_of_zero() -> None:
    gram = gram_of_sketches(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([0.0, 25.0]))
    assert gram.tolist() == [[0.0, 0.0], [0.0, 25.0]]


@pytest.mark.parametrize("n_parts", [2, 4])
def test_stripes_of_sketches_add_up_however_they_are_divided(shelf: Shelf, n_parts: int) -> None:
    rng = np.random.default_rng(1)
    size = 4 * MIN_BLOCKS * BLOCK + 100
    base, *rows = (shelf.put({"w": rng.normal(size=size).astype(np.float32)}) for _ in range(4))
    columns = plan_columns([TensorSpec("w", "F32", (size,))])
    stripes = columns.stripes()

    def sums(some: tuple[Span, ...]) -> list[np.ndarray]:
        sweep = Sweep(columns, some, shelf.open)
        return [p.sketches for p in inner_products(sweep, rows, base, signs=Signs(0, N_FEATURES))]

    cut = len(stripes) // n_parts
    divided = [*sums(stripes[:cut]), *sums(stripes[cut:])]
    assert added(divided).tobytes() == added(sums(stripes)).tobytes()
