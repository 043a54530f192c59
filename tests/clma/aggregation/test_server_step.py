"""A server optimiser in whole rounds: what it steps, what it leaves alone, what it remembers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from clma.aggregation.adaptive_fedavg import AdaptiveState, learning_rate_factor, observe_model
from clma.aggregation.flash import FlashState, flash_step
from clma.aggregation.server_step import Start, take_step
from clma.config import AggregationConfig, FederationConfig, preset_config
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ArtifactRef, FederationState, TensorSpec
from tests.clma.shelf import Shelf, models, one_cohort, run, update

FLASH = preset_config("test", "flash")
ADAPTIVE = preset_config("test", "adaptive-fedavg")
every_optimizer = pytest.mark.parametrize("config", [FLASH, ADAPTIVE], ids=lambda c: c.preset)


def nights(
    shelf: Shelf, base: str, config: FederationConfig, *moves: list[float]
) -> list[FederationState]:
    """Let two plants move the model they were sent, every night by another step."""
    states = [one_cohort(base, ["p1", "p2"])]
    for move in moves:
        sent = states[-1].cohorts["c0"].model_digest
        weights = np.array(shelf.read(sent)) + move
        updates = [update(shelf, c, weights.tolist(), sent) for c in ("p1", "p2")]
        after = run(shelf, states[-1], updates, config).state
        states.append(dataclasses.replace(after, round_num=after.round_num + 1))
    return states[1:]


def test_flash_steps_from_the_model_that_was_sent(shelf: Shelf, base: str) -> None:
    """By the mean of the updates, with what it remembers of the night before."""
    states = nights(shelf, base, FLASH, [0.1, -0.02, 0.0], [0.3, 0.01, 0.0])
    memory, weights = FlashState.fresh(3), np.array([1.0, 1.0, 1.0])
    for state, update_of_night in zip(states, ([0.1, -0.02, 0.0], [0.3, 0.01, 0.0]), strict=True):
        memory, step = flash_step(memory, np.array(update_of_night), learning_rate=0.01)
        weights = weights + step
        made = shelf.read(state.cohorts["c0"].model_digest)
        np.testing.assert_allclose(made, weights, atol=1e-5)


def test_the_server_learning_rate_is_the_length_of_the_step(shelf: Shelf, base: str) -> None:
    slow = preset_config("test", "flash", aggregation={"server_learning_rate": 0.001})
    made = [
        np.array(shelf.read(nights(shelf, base, config, [0.1, 0, 0])[0].cohorts["c0"].model_digest))
        for config in (FLASH, slow)
    ]
    np.testing.assert_allclose(made[1] - 1, (made[0] - 1) / 10, atol=1e-6)


def test_adaptive_fedavg_leaves_the_mean_and_tells_a_rate(shelf: Shelf, base: str) -> None:
    moves = [[0.1, 0, 0], [0.1, 0, 0], [2.0, 0, 0]]
    states = nights(shelf, base, ADAPTIVE, *moves)
    plain = nights(shelf, base, preset_config("test", "fedavg"), *moves)
    memory = AdaptiveState.fresh(3)
    for state, same in zip(states, plain, strict=True):
        cohort = state.cohorts["c0"]
        memory = observe_model(memory, np.array(shelf.read(cohort.model_digest)))
        assert cohort.model_digest == same.cohorts["c0"].model_digest
        assert cohort.learning_rate_factor == learning_rate_factor(memory)
        assert same.cohorts["c0"].learning_rate_factor == 1


@every_optimizer
def test_order_of_arrival_changes_no_bit(shelf: Shelf, base: str, config: FederationConfig) -> None:
    rng = np.random.default_rng(0)
    updates = [update(shelf, f"p{i}", (1 + rng.normal(size=3)).tolist(), base) for i in range(6)]
    state = one_cohort(base, [u.client_id for u in updates])
    first, second = (run(shelf, state, order, config) for order in (updates, updates[::-1]))
    assert first.state == second.state


@every_optimizer
def test_a_night_without_the_cohorts_voters_changes_nothing_of_it(
    shelf: Shelf, base: str, config: FederationConfig
) -> None:
    (state,) = nights(shelf, base, config, [0.1, 0, 0])
    sent = state.cohorts["c0"].model_digest
    silent = preset_config("test", config.preset, round={"cohort_quorum": 2})
    after = run(shelf, state, [update(shelf, "p1", [9, 9, 9], sent)], silent).state
    assert after.cohorts["c0"] == state.cohorts["c0"]


def test_a_newborn_cohort_steps_from_the_model_sent_and_remembers_nothing(
    shelf: Shelf, base: str
) -> None:
    config = preset_config("test", aggregation={"server_optimizer": "flash"})
    updates = [
        update(shelf, "p1", [1.1, 1, 1], base),
        update(shelf, "p2", [1, 1.1, 1], base, flag=True),
    ]
    outcome = run(shelf, one_cohort(base, ["p1", "p2"]), updates, config)
    _, step = flash_step(FlashState.fresh(3), np.array([0, 0.1, 0]), learning_rate=0.01)
    np.testing.assert_allclose(models(shelf, outcome)["c1"], 1 + step, atol=1e-6)


def test_a_memory_of_another_optimizer_is_dropped(shelf: Shelf, base: str) -> None:
    (state,) = nights(shelf, base, ADAPTIVE, [0.1, 0, 0])
    sent = state.cohorts["c0"].model_digest
    forgetful = dataclasses.replace(
        state, cohorts={"c0": dataclasses.replace(state.cohorts["c0"], optimizer_digest=None)}
    )
    after, fresh = (
        run(shelf, s, [update(shelf, "p1", [2, 1, 1], sent)], FLASH).state
        for s in (state, forgetful)
    )
    assert after.cohorts["c0"] == fresh.cohorts["c0"]


def test_without_an_optimizer_memory_and_rate_are_gone(shelf: Shelf, base: str) -> None:
    (state,) = nights(shelf, base, ADAPTIVE, [0.1, 0, 0])
    sent = state.cohorts["c0"].model_digest
    plain = preset_config("test", "fedavg")
    cohort = run(shelf, state, [update(shelf, "p1", [2, 1, 1], sent)], plain).state.cohorts["c0"]
    assert (cohort.optimizer_digest, cohort.learning_rate_factor) == (None, 1.0)


def test_the_average_over_everybody_is_not_stepped(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, "p1", [2, 1, 1], base)]
    outcome = run(
        shelf,
        one_cohort(base, ["p1"]),
        updates,
        preset_config("test", "clma-literal", aggregation={"server_optimizer": "flash"}),
    )
    assert shelf.read(str(outcome.decision.consensus_digest)) == [2, 1, 1]


TENSORS: dict[str, Any] = {
    "bn.num_batches_tracked": np.array(7, np.int64),
    "bn.running_mean": np.array([5.0], np.float32),
    "mask": np.array([True, False]),
    "w": np.array([[0.002, -0.002]], np.float32),
}


def stepped(
    shelf: Shelf,
    mean: dict[str, Any],
    sent: dict[str, Any],
    specs: list[TensorSpec] | None = None,
    rate: float = 0.01,
) -> ArtifactRef:
    config = AggregationConfig(server_optimizer="flash", server_learning_rate=rate)
    start = Start(shelf_ref(shelf, serialize_tensors(sent, specs)))
    made = take_step(serialize_tensors(mean, specs), start, config, shelf.open)
    return shelf_ref(shelf, made.model)


def shelf_ref(shelf: Shelf, data: bytes) -> ArtifactRef:
    digest = shelf.save(data)
    return ArtifactRef(digest, digest)


def test_statistics_and_integers_take_the_mean(shelf: Shelf) -> None:
    zeros = {name: np.zeros_like(values) for name, values in TENSORS.items()}
    with shelf.open(stepped(shelf, TENSORS, zeros)) as file:
        for name in set(TENSORS) - {"w"}:
            np.testing.assert_array_equal(file.read(name), TENSORS[name])
        assert not np.allclose(file.read("w"), TENSORS["w"])


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F64"])
def test_the_model_keeps_its_dtypes_and_is_finite(shelf: Shelf, dtype: str) -> None:
    """A step from the largest number beyond it ends there."""
    specs = [TensorSpec("w", dtype, (2,))]
    large = {"F16": 6e4, "BF16": 3e38, "F32": 3e38, "F64": 9.9e99}[dtype]
    for before in (-large, 0.5 * large):
        sent = {"w": np.array([before, 0.0])}
        made = stepped(shelf, {"w": np.array([large, 0.25])}, sent, specs, rate=0.1)
        with shelf.open(made) as file:
            assert file.spec("w") == specs[0]
            assert np.isfinite(file.read("w")).all()
