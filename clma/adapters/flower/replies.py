"""What a node answered, taken apart; nothing in it is believed beyond its form.

Examples
--------
>>> flag_of({"clma-drift": 1}, "clma-drift")
True
>>> flag_of({}, "clma-drift") is None
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from flwr.app import ArrayRecord, Message, RecordDict

from clma.adapters.flower.records import CONFIRM_KEY, LOSS_KEY, ROUND_KEY
from clma.errors import InvalidUpdateError
from clma.ledger.keys import printable
from clma.updates.message import MAX_EXAMPLES
from clma.updates.reasons import Reason

__all__ = ["ReplyKeys", "TrainReply", "flag_of", "metrics_of", "n_examples_of", "read_train_reply"]


@dataclass(frozen=True, slots=True)
class ReplyKeys:
    """Under which names a reply holds what.

    Parameters
    ----------
    arrays : str
        Array record; where a reply has only one, that one.
    examples : str
        Metric: number of examples.
    drift : str
        Metric: drift flag.
    """

    arrays: str
    examples: str
    drift: str


@dataclass(frozen=True, slots=True)
class TrainReply:
    """A reply with a trained model.

    Parameters
    ----------
    node_id : int
    arrays : ArrayRecord
        Not looked into.
    n_examples : int, >= 0
    drift_flag : bool or None
        None: the node sent none.
    confirm : bool or None
    loss : float or None
    round_num : int or None
        Round that it was trained for, of the federation; None: the node does not say.
    """

    node_id: int
    arrays: ArrayRecord
    n_examples: int
    drift_flag: bool | None
    confirm: bool | None
    loss: float | None
    round_num: int | None = None


def read_train_reply(message: Message, keys: ReplyKeys) -> TrainReply:
    """Take a reply apart.

    Parameters
    ----------
    message : Message
        With content, from any node.
    keys : ReplyKeys

    Raises
    ------
    InvalidUpdateError
        If the model or the number of examples is missing, or a value is none of its kind.
    """
    metrics = metrics_of(message.content, keys.examples)
    return TrainReply(
        node_id=message.metadata.src_node_id,
        arrays=_arrays_of(message.content, keys.arrays),
        n_examples=n_examples_of(metrics, keys.examples),
        drift_flag=flag_of(metrics, keys.drift),
        confirm=flag_of(metrics, CONFIRM_KEY),
        loss=_loss_of(metrics),
        round_num=_round_of(metrics),
    )


def metrics_of(content: RecordDict, examples_key: str) -> Mapping[str, Any]:
    """Return the metric record that counts examples, or else the only one.

    Raises
    ------
    InvalidUpdateError
        If there is none, or no telling which.
    """
    records: list[Mapping[str, Any]] = list(content.metric_records.values())
    counting = [record for record in records if examples_key in record] or records
    if len(counting) != 1:
        raise InvalidUpdateError(f"{len(counting)} metric records, wanted one", Reason.BAD_METADATA)
    return counting[0]


def n_examples_of(metrics: Mapping[str, Any], key: str) -> int:
    """Return a number of examples; InvalidUpdateError if it is no whole number from 0 to 10^12."""
    value = metrics.get(key)
    if _is_number(value) and 0 <= value <= MAX_EXAMPLES and value == int(value):
        return int(value)
    raise InvalidUpdateError(
        f"'{key}' is {printable(repr(value))}, wanted a whole number from 0 to 10^12",
        Reason.BAD_EXAMPLES,
    )


def flag_of(metrics: Mapping[str, Any], key: str) -> bool | None:
    """Return a yes or no that travels as a number, None where it is missing.

    Raises
    ------
    InvalidUpdateError
        If it is neither 0 nor 1.
    """
    value = metrics.get(key)
    if value is None:
        return None
    if _is_number(value) and value in {0, 1}:
        return bool(value)
    raise InvalidUpdateError(
        f"'{key}' is {printable(repr(value))}, wanted 0 or 1", Reason.BAD_METADATA
    )


def _arrays_of(content: RecordDict, key: str) -> ArrayRecord:
    records = content.array_records
    if key in records:
        return records[key]
    if len(records) != 1:
        raise InvalidUpdateError(
            f"{len(records)} array records and none named '{key}', wanted one", Reason.BAD_METADATA
        )
    return next(iter(records.values()))


def _round_of(metrics: Mapping[str, Any]) -> int | None:
    value = metrics.get(ROUND_KEY)
    if value is None:
        return None
    if _is_number(value) and value == int(value) and 1 <= value < 10**9:
        return int(value)
    raise InvalidUpdateError(
        f"'{ROUND_KEY}' is {printable(repr(value))}, wanted the number of a round",
        Reason.BAD_METADATA,
    )


def _loss_of(metrics: Mapping[str, Any]) -> float | None:
    value = metrics.get(LOSS_KEY)
    return float(value) if _is_number(value) else None


def _is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False
