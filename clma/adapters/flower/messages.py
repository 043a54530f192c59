"""Write the messages of a round: every node gets the model of its own cohort."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from clma.adapters.flower.exchange import Assignment
from clma.adapters.flower.records import (
    COHORT_KEY,
    DRIFT_SETTINGS_KEY,
    LEARNING_RATE_KEY,
    ORIGIN_KEY,
    PROXIMAL_KEY,
    ROUND_KEY,
)
from clma.config import FederationConfig
from clma.records import FederationState, cohort_number

__all__ = ["MessageWriter", "train_settings"]


class MessageWriter:
    """Writes messages of one round, each model read once.

    Parameters
    ----------
    arrays_key, config_key : str
        Names of the records.
    model : callable
        Model of a digest.
    """

    def __init__(
        self, arrays_key: str, config_key: str, model: Callable[[str], ArrayRecord]
    ) -> None:
        self._arrays_key = arrays_key
        self._config_key = config_key
        self._model = cache(model)

    def write_train(
        self, assignments: Mapping[int, Assignment], settings: Mapping[str, Any]
    ) -> list[Message]:
        """Return train messages; with the model of the cohort that a node is asked about, if any.

        Parameters
        ----------
        assignments : mapping of node id to Assignment
        settings : mapping of name to value
            For all nodes.
        """
        return [
            self._message(node_id, assignment, settings, MessageType.TRAIN)
            for node_id, assignment in assignments.items()
        ]

    def write_evaluate(
        self, assignments: Mapping[int, Assignment], settings: Mapping[str, Any]
    ) -> list[Message]:
        """Return evaluation messages, as `write_train` but for the question."""
        return [
            self._message(node_id, assignment, settings, MessageType.EVALUATE)
            for node_id, assignment in assignments.items()
        ]

    def _message(
        self, node_id: int, assignment: Assignment, settings: Mapping[str, Any], kind: str
    ) -> Message:
        own = {
            COHORT_KEY: cohort_number(assignment.cohort_id),
            LEARNING_RATE_KEY: assignment.learning_rate_factor,
        }
        content = RecordDict(
            {
                self._arrays_key: self._model(assignment.model),
                self._config_key: ConfigRecord({**settings, **own}),
            }
        )
        if kind == MessageType.TRAIN and assignment.origin is not None:
            content[ORIGIN_KEY] = self._model(assignment.origin)
        return Message(content, dst_node_id=node_id, message_type=kind)


def train_settings(state: FederationState, config: FederationConfig) -> dict[str, Any]:
    """Return what every node is told of a round."""
    return {
        ROUND_KEY: state.round_num,
        DRIFT_SETTINGS_KEY: config.drift.model_dump_json(),
        PROXIMAL_KEY: config.client.proximal_mu,
    }
