from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.torch import parameters_of  # noqa: E402
from clma.errors import InvalidConfigError  # noqa: E402
from clma.simulation.mlp import mlp  # noqa: E402


def test_inputs_of_any_shape_are_taken_as_rows() -> None:
    module, images = mlp(64), torch.rand(3, 8, 8)

    assert torch.equal(module(images), module(images.reshape(3, 64)))


def test_seed_decides_the_weights() -> None:
    one, same, other = (parameters_of(mlp(4, seed=seed))["hidden.weight"] for seed in (1, 1, 2))

    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_first_loss_is_near_that_of_guessing() -> None:
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 64))).float()

    loss = torch.nn.functional.cross_entropy(mlp(64)(inputs), torch.arange(60) % 10)

    assert loss.item() == pytest.approx(np.log(10), abs=0.15)


def test_sizes_that_are_too_small_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="wanted at least 1"):
        mlp(0)
