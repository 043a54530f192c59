from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.factory import load_factory  # noqa: E402
from clma.errors import InvalidConfigError  # noqa: E402
from clma.simulation.cnn import cnn1d, initial_parameters  # noqa: E402


def test_network_has_about_25_000_parameters() -> None:
    assert sum(array.size for array in initial_parameters(0).values()) == 25_301


def test_factory_path_builds_the_network() -> None:
    module = load_factory("clma.simulation.cnn:cnn1d")(n_variables=4, n_classes=3, window=12)

    assert module(torch.zeros(2, 4, 12)).shape == (2, 3)


def test_seed_decides_the_weights() -> None:
    one, same, other = (initial_parameters(seed)["conv1.weight"] for seed in (1, 1, 2))

    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_global_generator_is_not_touched() -> None:
    before = torch.random.get_rng_state()

    initial_parameters(0)

    assert torch.equal(torch.random.get_rng_state(), before)


def test_first_loss_is_near_that_of_guessing() -> None:
    windows = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 17, 30))).float()

    loss = torch.nn.functional.cross_entropy(cnn1d()(windows), torch.arange(64) % 5)

    assert loss.item() == pytest.approx(np.log(5), abs=0.15)


@pytest.mark.parametrize("arguments", [{"window": 7}, {"n_classes": 0}, {"n_variables": 0}])
def test_sizes_that_are_too_small_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidConfigError, match="wanted at least 1, 1 and 8"):
        cnn1d(**arguments)
