from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.factory import load_factory  # noqa: E402
from clma.adapters.torch import load_parameters, parameters_of  # noqa: E402
from clma.errors import InvalidConfigError, ShapeMismatchError  # noqa: E402
from clma.simulation import load_fleet  # noqa: E402
from clma.simulation.scores import macro_f1  # noqa: E402
from clma.simulation.training import TrainingConfig, losses, predict, train  # noqa: E402

FLEET = load_fleet(None, "plant", 0)
START = FLEET.initial_parameters()
SHORT = TrainingConfig(local_epochs=1)


def _trained(client_id: str = "plant-01", seed: int = 0) -> dict[str, np.ndarray]:
    windows, labels = FLEET.training_windows(client_id, 1)
    return train(START, windows, labels, SHORT, np.random.default_rng(seed), model=FLEET.model)


def _moved(**rules: float) -> dict[str, np.ndarray]:
    """How far one epoch in batches of 16 takes each parameter."""
    windows, labels = FLEET.training_windows("plant-01", 1)
    after = train(START, windows, labels, SHORT, np.random.default_rng(0), **rules)
    return {name: after[name].astype(np.float64) - START[name] for name in START}


def _norm(moved: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum((array**2).sum() for array in moved.values())))


def _bytes(parameters: dict[str, np.ndarray]) -> bytes:
    return b"".join(parameters[name].tobytes() for name in sorted(parameters))


def test_training_lowers_the_loss() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)

    before, after = (losses(p, windows, labels, model=FLEET.model) for p in (START, _trained()))

    assert after.mean() < before.mean()


def test_same_generator_gives_the_same_bytes() -> None:
    assert _bytes(_trained()) == _bytes(_trained())
    assert _bytes(_trained()) != _bytes(_trained(seed=1))


def test_threads_do_not_share_a_module() -> None:
    clients = FLEET.client_ids[:4]
    alone = [_bytes(_trained(client_id)) for client_id in clients]

    with ThreadPoolExecutor(4) as pool:
        together = [_bytes(parameters) for parameters in pool.map(_trained, clients)]

    assert together == alone


def test_inputs_are_not_modified() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)
    start, before, y = _bytes(START), windows.copy(), labels.copy()

    train(START, windows, labels, SHORT, np.random.default_rng(0))

    assert _bytes(START) == start
    np.testing.assert_array_equal(windows, before)
    np.testing.assert_array_equal(labels, y)


def test_losses_are_one_per_window_in_float64() -> None:
    windows, labels = FLEET.test_windows("plant-01", 1)

    values = losses(START, windows, labels)

    assert values.shape == (200,)
    assert values.dtype == np.float64
    assert (values > 0).all()


def test_small_steps_when_gradients_are_clipped_hard() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)
    config = TrainingConfig(momentum=0.0, clip_norm=1e-3, batch_size=96, local_epochs=1)

    after = train(START, windows, labels, config, np.random.default_rng(0))

    moved = np.sqrt(sum(((after[n] - START[n]).astype(np.float64) ** 2).sum() for n in START))
    assert moved == pytest.approx(0.02 * 1e-3, rel=0.05)


def test_rules_that_ask_for_nothing_change_no_bit() -> None:
    plain, asked = _moved(), _moved(proximal_mu=0.0, learning_rate_factor=1.0)

    assert _bytes(plain) == _bytes(asked)


def test_proximal_term_holds_the_parameters_near_what_was_sent() -> None:
    lengths = [_norm(_moved(proximal_mu=mu)) for mu in (0.0, 1.0, 10.0)]

    assert lengths[0] > lengths[1] > lengths[2] > 0


def test_proximal_gradient_is_mu_times_the_way_gone() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)
    plain = TrainingConfig(momentum=0.0, batch_size=96, local_epochs=1, clip_norm=math.inf)
    one, two = plain, dataclasses.replace(plain, local_epochs=2)

    def go(config: TrainingConfig, mu: float) -> np.ndarray:
        rng = np.random.default_rng(0)
        return train(START, windows, labels, config, rng, proximal_mu=mu)["hidden.weight"]

    gone = go(one, 0.0) - START["hidden.weight"]
    np.testing.assert_allclose(go(two, 0.0) - go(two, 5.0), 0.02 * 5.0 * gone, atol=1e-6)


def test_rate_factor_scales_a_step() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)
    config = TrainingConfig(momentum=0.0, batch_size=96, local_epochs=1)
    halved = dataclasses.replace(config, learning_rate=0.01)

    by_factor = train(
        START, windows, labels, config, np.random.default_rng(0), learning_rate_factor=0.5
    )

    by_rate = train(START, windows, labels, halved, np.random.default_rng(0))
    assert _bytes(by_factor) == _bytes(by_rate)


@pytest.mark.parametrize(
    "rules", [{"proximal_mu": -0.1}, {"proximal_mu": math.nan}, {"learning_rate_factor": 0.0}]
)
def test_rules_out_of_range_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError, match="wanted finite numbers"):
        _moved(**rules)


def test_infinite_clip_norm_is_no_clipping() -> None:
    huge, none = (
        train(
            START,
            *FLEET.training_windows("plant-01", 1),
            TrainingConfig(local_epochs=1, clip_norm=clip_norm),
            np.random.default_rng(0),
        )
        for clip_norm in (1e30, math.inf)
    )

    assert _bytes(huge) == _bytes(none)


def test_many_windows_are_judged_as_few_are() -> None:
    windows, labels = FLEET.test_windows("plant-01", 1)
    alone = losses(START, windows, labels)

    together = losses(START, np.tile(windows, (3, 1, 1)), np.tile(labels, 3))

    assert len(together) == 600
    np.testing.assert_allclose(together, np.tile(alone, 3), rtol=1e-5)


def test_callers_thread_count_changes_no_byte() -> None:
    plain = _bytes(_trained())
    torch.set_num_threads(2)

    assert _bytes(_trained()) == plain
    assert torch.get_num_threads() == 1


@pytest.mark.slow
def test_drift_costs_a_trained_model_much_of_its_score() -> None:
    parameters = START
    for round_num in (1, 2):
        for client_id in FLEET.client_ids[:6]:
            windows, labels = FLEET.training_windows(client_id, round_num)
            rng = np.random.default_rng(round_num)
            parameters = train(parameters, windows, labels, TrainingConfig(), rng)

    scores = {}
    for client_id in ("plant-03", "plant-04"):
        for round_num in (2, 3):
            windows, labels = FLEET.test_windows(client_id, round_num)
            scores[client_id, round_num] = macro_f1(labels, predict(parameters, windows))

    assert all(scores[client_id, 2] > scores[client_id, 3] + 0.2 for client_id, _ in scores)


def test_labels_and_windows_must_be_as_many() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)

    with pytest.raises(ShapeMismatchError, match="96 windows, 95 labels"):
        losses(START, windows, labels[:-1])


def test_no_windows_are_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="0 windows, 0 labels"):
        losses(START, np.zeros((0, 17, 30), np.float32), np.zeros(0, np.int64))


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"momentum": 1.0},
        {"batch_size": 0},
        {"clip_norm": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError, match="wanted"):
        TrainingConfig(**settings)


def test_training_is_that_of_torchs_own_optimiser_to_the_bit() -> None:
    windows, labels = FLEET.training_windows("plant-01", 1)
    config = TrainingConfig(local_epochs=2, clip_norm=0.5)
    module = load_factory(FLEET.model.factory)(**dict(FLEET.model.arguments))
    load_parameters(module, START)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
    order = np.random.default_rng(7)
    x, y = torch.from_numpy(windows), torch.from_numpy(labels)
    for _ in range(2):
        for batch in torch.from_numpy(order.permutation(len(y))).split(config.batch_size):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
            optimizer.step()

    trained = train(START, windows, labels, config, np.random.default_rng(7), model=FLEET.model)

    assert _bytes(trained) == _bytes(parameters_of(module))
