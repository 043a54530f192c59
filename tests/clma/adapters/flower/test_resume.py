"""A strategy with a store goes on where it stopped, wherever that was."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from clma.adapters.flower import CLMA
from clma.adapters.flower.rounds import Rounds
from clma.config import preset_config
from clma.errors import InvalidConfigError, ShapeMismatchError, UnknownFederationError
from clma.ledger.audit import audit
from clma.ledger.federation import Federation
from clma.parameters.tensor_file import serialize_tensors
from clma.records import model_ref
from tests.clma.adapters.flower.crowd import Crowd, a_round, arrays, moved, reply, values

LEFT = arrays(5, 5, 5, 0, 0, 0)
N_ROUNDS = 3


class Killed(BaseException):
    """Stands for a process that is stopped."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def fleet() -> Crowd:
    """Four nodes; two drift in the federation's second round."""

    def answer(message: Message) -> Message:
        round_num = message.content["config"]["clma-round"]
        drifts = round_num == 2 and message.metadata.dst_node_id > 2
        return reply(message, moved(message, LEFT if drifts else 1.0), clma_drift=int(drifts))

    return Crowd(dict.fromkeys((1, 2, 3, 4), answer))


def lived(strategy: CLMA, store: Path) -> list[np.ndarray]:
    """Run rounds until the federation has closed the last one; return its models."""
    while not store.exists() or Federation.open(store).state().round_num <= N_ROUNDS:
        a_round(strategy, fleet())
    federation = Federation.open(store)
    cohorts = federation.state().active_cohorts()
    return [federation.open_tensors(model_ref(c.model_digest)).read("w") for c in cohorts]


def in_memory() -> list[np.ndarray]:
    strategy = CLMA()
    for number in range(1, N_ROUNDS + 1):
        a_round(strategy, fleet(), number)
    return [values(model) for model in strategy.models().values()]


def test_memory_and_store_come_to_the_same_bits(store: Path) -> None:
    np.testing.assert_array_equal(lived(CLMA(store=store), store), in_memory())


def test_a_new_server_app_goes_on_with_the_same_cohorts(store: Path) -> None:
    for _ in range(N_ROUNDS):
        a_round(CLMA(store=store), fleet())

    np.testing.assert_array_equal(lived(CLMA(store=store), store), in_memory())


def test_memory_forgets_nothing_that_a_long_life_asks_for(store: Path) -> None:
    """Three kinds of drift, false alarms and ways home: every later round looks at older models."""
    kinds = np.random.default_rng(0).standard_normal((3, 6)) * 5

    def answer(message: Message) -> Message:
        round_num, node = message.content["config"]["clma-round"], message.metadata.dst_node_id
        rng = np.random.default_rng([round_num, node])
        drifts = round_num % 4 == 0
        step = kinds[(round_num // 4 + node) % 3] if drifts else rng.normal(0.3, 0.05, 6)
        flag = int(drifts or rng.random() < 0.1)
        return reply(message, moved(message, arrays(*step)), clma_drift=flag)

    lives = []
    for strategy in (CLMA(), CLMA(store=store)):
        crowd = Crowd(dict.fromkeys(range(8), answer))
        lives.append([dict(a_round(strategy, crowd, number)[1]) for number in range(1, 15)])
        lives.append(strategy.cohort_history)

    assert lives[:2] == lives[2:]
    assert sum(metrics["clma-num-new-cohorts"] for metrics in lives[0]) > 5


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["seal_round", "add_model", "commit_round", "open_round"])
def test_killed_in_a_round_and_started_again_it_decides_the_same(
    store: Path, step: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_round(CLMA(store=store), fleet())
    original = getattr(Federation, step)

    def dies(self: Federation, *args: Any, **kwargs: Any) -> None:
        if moment == "after":
            original(self, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Federation, step, dies)
        with pytest.raises(Killed):
            a_round(CLMA(store=store), fleet())

    np.testing.assert_array_equal(lived(CLMA(store=store), store), in_memory())
    assert audit(Federation.open(store)).problems == ()


def test_killed_while_replies_come_in_it_counts_each_node_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_round(CLMA(store=store), fleet())
    original, submitted = Rounds.submit, []

    def dies(self: Rounds, *args: Any) -> None:
        if len(submitted) == 2:
            raise Killed
        submitted.append(original(self, *args))

    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "submit", dies)
        with pytest.raises(Killed):
            a_round(CLMA(store=store), fleet())

    np.testing.assert_array_equal(lived(CLMA(store=store), store), in_memory())


def test_memory_keeps_only_what_the_next_round_needs() -> None:
    strategy = CLMA()
    for number in range(1, 6):
        a_round(strategy, fleet(), number)

    kept = strategy._rounds.federation.store
    assert not [key for key in kept.list("rounds") if key.endswith(".safetensors")]
    assert len(kept.list("models")) <= 8


def test_another_model_is_refused(store: Path) -> None:
    a_round(CLMA(store=store), fleet())

    with pytest.raises(ShapeMismatchError, match="other names, dtypes or shapes than federation"):
        a_round(CLMA(store=store), fleet(), start=arrays(1.0, 2.0))


def test_another_federation_is_refused(store: Path) -> None:
    a_round(CLMA(store=store, federation="north"), fleet())

    with pytest.raises(UnknownFederationError, match="holds federation 'north', not 'south'"):
        a_round(CLMA(store=store, federation="south"), fleet())


def test_a_federation_that_signs_is_refused(store: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.safetensors"
    base.write_bytes(serialize_tensors({"w": np.zeros(6, np.float32)}))
    Federation.create(store, preset_config("flower"), base)

    with pytest.raises(InvalidConfigError, match="takes signed updates"):
        a_round(CLMA(store=store), fleet())


def test_settings_that_are_not_in_force_are_named(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a_round(CLMA(store=store), fleet())

    with caplog.at_level(logging.WARNING, logger="flwr"):
        a_round(CLMA(store=store, settings=["round.quorum=3"]), fleet())

    assert "has round.quorum = 1, not 3" in caplog.text
