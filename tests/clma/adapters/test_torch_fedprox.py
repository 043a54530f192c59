from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.torch import parameters_of  # noqa: E402
from clma.adapters.torch_fedprox import proximal_term  # noqa: E402
from clma.errors import InvalidConfigError  # noqa: E402
from clma.simulation.fleet import ModelSpec  # noqa: E402
from clma.simulation.mlp import mlp  # noqa: E402
from clma.simulation.training import train  # noqa: E402
from clma.simulation.training_config import TrainingConfig  # noqa: E402


def _moved(module: torch.nn.Module, step: float) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(step)


def test_its_gradient_is_mu_times_the_way_from_the_received_model() -> None:
    module = torch.nn.Linear(2, 1)
    term = proximal_term(module, mu=0.5)
    _moved(module, 3.0)

    term().backward()

    assert module.weight.grad.tolist() == [[1.5, 1.5]]
    assert float(term().detach()) == pytest.approx(0.25 * 3 * 9)


def test_frozen_personal_and_tied_parameters_count_once_or_not_at_all() -> None:
    module = torch.nn.Sequential(*(torch.nn.Linear(1, 1, bias=False) for _ in range(4)))
    module[0].requires_grad_(False)
    module[3].weight = module[2].weight
    term = proximal_term(module, mu=2.0, personal=["1.*"])

    with torch.no_grad():
        for layer in (0, 1, 2):
            module[layer].weight.add_(1.0)

    assert float(term().detach()) == pytest.approx(1.0)


def test_without_strength_it_costs_nothing() -> None:
    module = torch.nn.Linear(2, 1)
    term = proximal_term(module, mu=0.0)
    _moved(module, 3.0)

    assert float(term()) == 0.0


@pytest.mark.parametrize("mu", [-1.0, float("nan"), float("inf")])
def test_a_strength_that_is_none_is_refused(mu: float) -> None:
    with pytest.raises(InvalidConfigError, match="wanted a finite number"):
        proximal_term(torch.nn.Linear(1, 1), mu=mu)


def test_a_step_with_it_is_the_simulations_step() -> None:
    """Both write one paper down: the term in a loss, and the gradient that it has."""
    spec = ModelSpec.of("clma.simulation.mlp:mlp", n_inputs=3, n_classes=2)
    rng = np.random.default_rng(0)
    samples, labels = rng.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2
    config = TrainingConfig(local_epochs=4, batch_size=8, momentum=0.0, clip_norm=np.inf)
    module = mlp(n_inputs=3, n_classes=2)
    start = parameters_of(module)

    term = proximal_term(module, mu=3.0)
    optimizer = torch.optim.SGD(module.parameters(), lr=config.learning_rate)
    for _ in range(4):
        optimizer.zero_grad()
        outputs = module(torch.from_numpy(samples))
        loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(labels))
        (loss + term()).backward()
        optimizer.step()
    simulated = train(start, samples, labels, config=config, rng=rng, model=spec, proximal_mu=3.0)

    for name, values in parameters_of(module).items():
        np.testing.assert_allclose(values, simulated[name], rtol=1e-4, atol=1e-6)
