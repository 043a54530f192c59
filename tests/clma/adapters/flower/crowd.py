"""A grid of nodes that live in this process, and what they answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from clma.adapters.flower import CLMA

Answer = Callable[[Message], Message | list[Message]]

N_VALUES = 6


def act_as_server_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower tells a process who it is when it starts an app; older versions need no telling."""
    with contextlib.suppress(ImportError):
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(TaskIdentity, name, 1, raising=False)


def arrays(*values: float, dtype: Any = np.float32) -> ArrayRecord:
    """Return a model of one array; a single value fills it."""
    filled = np.array(values if len(values) > 1 else values * N_VALUES, dtype)
    return ArrayRecord({"w": Array(filled)})


def values(record: ArrayRecord) -> np.ndarray:
    return record["w"].numpy()


def reply(message: Message, model: ArrayRecord, **metrics: Any) -> Message:
    """Return an answer; metrics by the names of Python, ``n_examples`` is 10 unless said."""
    sent = {"num-examples": 10, "clma-drift": 0}
    named = {key.replace("_", "-"): value for key, value in metrics.items()}
    sent |= {key: value for key, value in named.items() if value is not None}
    for key, value in named.items():
        if value is None:
            del sent[key]
    content = RecordDict({"arrays": model, "metrics": MetricRecord(sent)})
    return Message(content, reply_to=message)


def moved(message: Message, by: ArrayRecord | float) -> ArrayRecord:
    """Return the received model, moved."""
    step = by if isinstance(by, float | int) else values(by)
    return arrays(*(values(message.content["arrays"]) + step))


def train(by: float | ArrayRecord = 1.0, **metrics: Any) -> Answer:
    """Return a node that moves its model and sends these metrics."""
    return lambda message: reply(message, moved(message, by), **metrics)


class Crowd(Grid):
    """Nodes by number, each with what it answers now."""

    def __init__(self, answers: dict[int, Answer]) -> None:
        self.answers = answers
        self.sent: list[Message] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        self.sent = list(messages)
        replies: list[Message] = []
        for message in self.sent:
            answered = self.answers[message.metadata.dst_node_id](message)
            replies += answered if isinstance(answered, list) else [answered]
        return replies

    def get_node_ids(self) -> list[int]:
        return list(self.answers)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    run = property(lambda self: None)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        raise NotImplementedError

    def model_of(self, node_id: int) -> np.ndarray:
        """Return the model that a node was sent last."""
        [message] = [m for m in self.sent if m.metadata.dst_node_id == node_id]
        return values(message.content["arrays"])


def a_round(
    strategy: CLMA, crowd: Crowd, number: int = 1, start: ArrayRecord | None = None
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Let nodes train for one round."""
    messages = strategy.configure_train(number, start or arrays(0.0), ConfigRecord(), crowd)
    return strategy.aggregate_train(number, crowd.send_and_receive(messages))
