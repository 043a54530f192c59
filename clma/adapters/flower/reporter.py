"""The drift flag of a ``ClientApp``; the detector's memory lives in Flower's ``Context.state``.

A function of a client app starts from nothing with every message. What must outlast it, Flower
keeps for the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from clma.adapters.flower.records import (
    COHORT_KEY,
    CONFIRM_KEY,
    DRIFT_KEY,
    DRIFT_SETTINGS_KEY,
    ORIGIN_KEY,
    ROUND_KEY,
)
from clma.client.reporter import DriftReporter as MemoryReporter
from clma.config import DriftConfig, preset_config
from clma.drift import Detector
from clma.errors import InvalidUpdateError

__all__ = ["DriftReporter", "cohort_id"]

_MEMORY_KEY = "clma-detector"

Losses = float | Sequence[float] | NDArray[Any]


class DriftReporter:
    """Turn a round's losses into the drift flag and the confirm bit, and write the reply.

    Parameters
    ----------
    context : Context
        Of the client app; its state keeps the detector's memory.
    detector_factory : callable, optional
        Makes the detector (`clma.drift`). Default: the one that the federation asks for in its
        messages.
    drift_key : str
        Metric that the flag is sent in.
    arrayrecord_key, configrecord_key, weighted_by_key : str
        As the strategy is told.

    Examples
    --------
    >>> context = Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})
    >>> DriftReporter(context).observe([0.4, 0.6])
    False
    >>> DriftReporter(context).observe([4.0, 6.0])
    True
    """

    def __init__(
        self,
        context: Context,
        detector_factory: Callable[[], Detector] | None = None,
        *,
        drift_key: str = DRIFT_KEY,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        weighted_by_key: str = "num-examples",
    ) -> None:
        self._context = context
        self._detector = None if detector_factory is None else detector_factory()
        self._drift_key = drift_key
        self._arrays_key = arrayrecord_key
        self._config_key = configrecord_key
        self._examples_key = weighted_by_key
        self._flag: bool | None = None
        self._loss: float | None = None
        self._confirm: bool | None = None

    def look(self, msg: Message, losses_of: Callable[[ArrayRecord], Losses]) -> bool:
        """Measure the received model on fresh data before training, and whatever else is asked.

        Parameters
        ----------
        msg : Message
            The train message.
        losses_of : callable
            Per-sample losses of a model on this round's fresh data, shape (n_samples,). Called
            once, and once more where the federation asks about the cohort that it was moved from.

        Returns
        -------
        bool
            The drift flag; `build_reply` sends it.

        Raises
        ------
        InvalidUpdateError
            If there is no sample, or a loss of the received model is not finite.
        """
        flag = self.observe(losses_of(msg.content[self._arrays_key]), msg)
        if ORIGIN_KEY in msg.content.array_records:
            losses = np.atleast_1d(np.asarray(losses_of(msg.content[ORIGIN_KEY]), np.float64))
            # A model that broke down elsewhere is bad here; it must not cost this node its round.
            is_finite = bool(np.isfinite(losses).all())
            self._confirm = not is_finite or self._reporter(msg).origin_still_bad(losses)
        return flag

    def observe(self, loss: Losses, msg: Message | None = None) -> bool:
        """Take this round's losses, or their mean, and return the flag.

        Parameters
        ----------
        loss : float or array of shape (n_samples,)
            Without single losses the detector knows nothing of their noise.
        msg : Message, optional
            The train message: looking twice at one round is then looking once.

        Raises
        ------
        InvalidUpdateError
            If there is no sample, or a loss is not finite.
        """
        reporter = self._reporter(msg)
        round_num = self._setting(msg, ROUND_KEY, reporter.round_num + 1)
        losses = np.atleast_1d(np.asarray(loss, np.float64))
        reading = reporter.observe(losses, round_num=int(round_num))
        self._context.state[_MEMORY_KEY] = ConfigRecord({"memory": reporter.memory})
        self._flag, self._loss = reading.drift_detected, reading.loss
        return reading.drift_detected

    def reset(self) -> None:
        """Forget all losses."""
        self._context.state.pop(_MEMORY_KEY, None)

    def build_reply(
        self,
        msg: Message,
        arrays: ArrayRecord,
        loss: float | None = None,
        num_examples: int = 0,
        extra_metrics: Mapping[str, float] | None = None,
    ) -> Message:
        """Return the reply: the trained model, its weight and one flag.

        Parameters
        ----------
        msg : Message
            The train message.
        arrays : ArrayRecord
            The trained model, with the names and shapes of the one that was received.
        loss : float, optional
            What the flag is raised on, where neither `look` nor `observe` was called before.
        num_examples : int, >= 0
            Examples that were trained on.
        extra_metrics : mapping of name to float, optional
            Sent as they are. The loss is one only if it is named here: a flag is all that leaves
            the node by itself.

        Raises
        ------
        InvalidUpdateError
            If nothing was looked at and no loss is given, or the loss is not finite.
        """
        if self._flag is None:
            if loss is None:
                raise InvalidUpdateError(
                    "no loss to raise a flag on: call look before training, or give loss"
                )
            self.observe(loss, msg)
        metrics: dict[str, float] = {
            self._examples_key: int(num_examples),
            self._drift_key: int(bool(self._flag)),
        }
        if (round_num := self._setting(msg, ROUND_KEY, None)) is not None:
            metrics[ROUND_KEY] = int(round_num)
        if self._confirm is not None:
            metrics[CONFIRM_KEY] = int(self._confirm)
        metrics |= dict(extra_metrics or {})
        content = RecordDict({self._arrays_key: arrays, "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=msg)

    def _reporter(self, msg: Message | None) -> MemoryReporter:
        kept = self._context.state.config_records.get(_MEMORY_KEY, {})
        settings = self._setting(msg, DRIFT_SETTINGS_KEY, None)
        config = self._detector or (
            preset_config("flower").drift
            if settings is None
            else DriftConfig.model_validate_json(str(settings))
        )
        memory = kept.get("memory")
        return MemoryReporter(config, memory=None if memory is None else str(memory))

    def _setting(self, msg: Message | None, key: str, otherwise: Any) -> Any:
        if msg is None:
            return otherwise
        return msg.content.config_records.get(self._config_key, {}).get(key, otherwise)


def cohort_id(msg: Message, config_key: str = "config") -> str:
    """Return the cohort whose model a message of the strategy carries, as ``c0``."""
    return f"c{int(msg.content[config_key][COHORT_KEY])}"
