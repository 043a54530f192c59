from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.torch import parameters_of, trainable_names  # noqa: E402
from clma.errors import InvalidConfigError  # noqa: E402
from clma.parameters.selectors import select_default  # noqa: E402
from clma.records import TensorSpec  # noqa: E402
from clma.simulation.cnn2d import cnn2d  # noqa: E402


def test_network_has_the_learnable_parameters_of_the_public_package_s() -> None:
    module = cnn2d()
    state = parameters_of(module)

    assert sum(state[name].size for name in trainable_names(module)) == 545_290


def test_cohorting_compares_what_was_learned_and_no_statistics() -> None:
    module = cnn2d()
    dtypes = {"float32": "F32", "int64": "I64"}
    specs = [TensorSpec(n, dtypes[str(a.dtype)], a.shape) for n, a in parameters_of(module).items()]

    assert set(select_default(specs)) == set(trainable_names(module))
    assert len(specs) == len(trainable_names(module)) + 6


def test_normalisation_starts_as_the_identity() -> None:
    module, images = cnn2d().eval(), torch.rand(2, 32, 5, 5)

    torch.testing.assert_close(module.norm1(images), images, rtol=1e-4, atol=1e-4)
    assert module.norm1.num_batches_tracked.item() == 0


def test_global_generator_is_not_touched() -> None:
    before = torch.random.get_rng_state()

    cnn2d(seed=3)

    assert torch.equal(torch.random.get_rng_state(), before)


def test_first_loss_is_near_that_of_guessing() -> None:
    images = torch.from_numpy(np.random.default_rng(0).uniform(-2, 2, (40, 3, 32, 32))).float()

    loss = torch.nn.functional.cross_entropy(cnn2d().eval()(images), torch.arange(40) % 10)

    assert loss.item() == pytest.approx(np.log(10), abs=0.3)


@pytest.mark.parametrize("arguments", [{"size": 30}, {"size": 0}, {"n_channels": 0}])
def test_sizes_that_do_not_fit_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidConfigError, match="a multiple of 4"):
        cnn2d(**arguments)
