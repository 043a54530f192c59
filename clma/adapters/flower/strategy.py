"""A drop-in strategy of Flower's message API: every node gets the model of its own cohort.

After the public description of CLMA (doi 10.1145/3703323.3703341), Algorithm 1; what a round
decides is `clma.round`, the same as in the night.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from clma.adapters.flower.counts import largest_cohort, round_counts
from clma.adapters.flower.exchange import Assignment, node_name
from clma.adapters.flower.messages import MessageWriter, train_settings
from clma.adapters.flower.metrics import Measured, weighted_means
from clma.adapters.flower.options import config_of, fedavg_options
from clma.adapters.flower.records import CONFIRM_KEY, DRIFT_KEY, ROUND_KEY
from clma.adapters.flower.replies import ReplyKeys, metrics_of, n_examples_of, read_train_reply
from clma.adapters.flower.rounds import Rounds
from clma.errors import InvalidUpdateError
from clma.parameters.tensor_file import TensorFileError
from clma.records import FederationState, cohort_number

__all__ = ["CLMA"]

_LOG = logging.getLogger("flwr")


class CLMA(FedAvg):  # type: ignore[misc]
    """Collaborative model adaptation as a Flower strategy.

    Nodes that report a drift leave their cohort's mean at once; those that drifted alike become a
    cohort of their own, or go back to one that is known. Every node is sent the model of its own
    cohort.

    Parameters
    ----------
    preset : str
        Key of `clma.config.PRESETS`, of those that need weights, flag and examples only.
    settings : sequence of str
        Changes to it, ``section.key=value`` as on the command line.
    store : str or Path, optional
        Folder or URL of the federation, as for the nightly rounds. Default: memory. A store that
        holds the federation already is gone on with, under the settings that it has.
    federation : str
        Its name.
    drift_key : str
        Metric in which nodes send their flag, 0 or 1. Without it a node has not drifted.
    client_id_of : callable
        Client id of a node. Default: ``node-`` and its number.
    **options
        Those of Flower's `FedAvg`, by name.

    Raises
    ------
    InvalidConfigError
        If a setting or an option is not valid; options of fed-clma are told their successor.

    Notes
    -----
    The arrays that a round returns are the model of its largest cohort, which somebody is served,
    and not a mean over cohorts, which nobody is; `models` has those of all. Replies are judged one
    by one: what cannot be used costs its node's vote and nothing else.

    References
    ----------
    .. [1] CLMA, doi 10.1145/3703323.3703341, Algorithm 1.
    """

    def __init__(
        self,
        *,
        preset: str = "clma",
        settings: Sequence[str] = (),
        store: str | Path | None = None,
        federation: str = "flower",
        drift_key: str = DRIFT_KEY,
        client_id_of: Callable[[int], str] = node_name,
        **options: Any,
    ) -> None:
        super().__init__(**fedavg_options(options))
        self._config = config_of(federation, preset, settings)
        self._store = store
        self._client_id_of = client_id_of
        self._has_own_train_metrics = options.get("train_metrics_aggr_fn") is not None
        self._has_own_evaluate_metrics = options.get("evaluate_metrics_aggr_fn") is not None
        self._keys = ReplyKeys(self.arrayrecord_key, self.weighted_by_key, drift_key)
        self._rounds = self._new_rounds()
        self._asked: dict[int, Assignment] = {}
        self._evaluating: dict[int, Assignment] = {}
        self._history: list[dict[str, str]] = []

    @property
    def cohorts(self) -> dict[str, str]:
        """Cohort of every client by now; empty before the first round."""
        return _cohorts(self._rounds.federation.state()) if self._rounds.has_begun else {}

    @property
    def cohort_history(self) -> list[dict[str, str]]:
        """Cohort of every client after each round since `start`."""
        return [dict(after) for after in self._history]

    def models(self) -> dict[str, ArrayRecord]:
        """Return the model of every cohort that has members; empty before the first round."""
        if not self._rounds.has_begun:
            return {}
        cohorts = self._rounds.federation.state().active_cohorts()
        return {c.cohort_id: self._rounds.model(c.model_digest) for c in cohorts}

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **kwargs: Any) -> Result:
        """Run rounds, as Flower's strategies do.

        Parameters
        ----------
        grid : Grid
        initial_arrays : ArrayRecord
            Model of a new federation. One that is in the store goes on with its own models.
        *args, **kwargs
            As Flower takes them: ``num_rounds`` more rounds, ``timeout``, ``train_config``,
            ``evaluate_config``, ``evaluate_fn``.

        Raises
        ------
        ShapeMismatchError
            If the store's federation has another model.
        """
        self._rounds = self._new_rounds()
        self._history = []
        return super().start(grid, initial_arrays, *args, **kwargs)

    def summary(self) -> None:
        """Log the settings."""
        super().summary()
        _LOG.info("\t├──> Cohorts:")
        _LOG.info("\t│\t├── Preset: '%s'", self._config.preset)
        _LOG.info("\t│\t├── Federation: '%s'", self._config.federation)
        _LOG.info("\t│\t└── Store: %s", "memory" if self._store is None else self._store)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample nodes as `FedAvg` does, and send each the model of its cohort."""
        node_ids = _nodes(super().configure_train(server_round, arrays, config, grid))
        self._rounds.begin(arrays, node_ids)
        self._asked = self._rounds.assignments(node_ids)
        return self._messages(self._asked, config, MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the round: quarantine, cohorts, one model each.

        Returns
        -------
        ArrayRecord or None
            Model of the largest cohort; None if the round was held.
        MetricRecord or None
            Means of what the nodes measured, and counts under ``clma-``.
        """
        answered = self._take_in(replies)
        if not self._asked:
            return None, None
        closed = self._rounds.close()
        self._asked = {}
        for row in closed.refused:
            _LOG.warning("aggregate_train: %s refused, %s", row.client_id, row.detail or row.reason)
        state = self._rounds.federation.state()
        self._history.append(_cohorts(state))
        used = [c for name, c in answered.items() if c is not None and name in closed.accepted]
        counts = {"clma-num-refused": len(answered.keys() - closed.accepted)}
        metrics = MetricRecord({**self._train_means(used), **round_counts(closed, state), **counts})
        if closed.outcome is None:
            _LOG.warning("aggregate_train: round %s is held: %s", server_round, closed.held)
            return None, metrics
        return self._rounds.model(largest_cohort(state).model_digest), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample nodes as `FedAvg` does, and send each the model that it is served."""
        node_ids = _nodes(super().configure_evaluate(server_round, arrays, config, grid))
        if not self._rounds.has_begun:
            self._rounds.begin(arrays, ())
        self._evaluating = self._rounds.assignments(node_ids)
        return self._messages(self._evaluating, config, MessageType.EVALUATE)

    def aggregate_evaluate(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> MetricRecord | None:
        """Average what nodes measured: over the fleet, and as ``c0/...`` over every cohort."""
        used = self._measured(replies)
        if not used:
            return None
        if self._has_own_evaluate_metrics:
            contents = [content for content, _ in used.values()]
            return self.evaluate_metrics_aggr_fn(contents, self.weighted_by_key)
        groups: dict[str, list[Measured]] = {}
        for node_id, (_, measured) in used.items():
            groups.setdefault(self._evaluating[node_id].cohort_id, []).append(measured)
        without = {self.weighted_by_key}
        means = weighted_means([measured for _, measured in used.values()], without=without)
        for cohort_id in sorted(groups, key=cohort_number):
            of_cohort = weighted_means(groups[cohort_id], without=without)
            means |= {f"{cohort_id}/{name}": mean for name, mean in of_cohort.items()}
        return MetricRecord(means)

    def _new_rounds(self) -> Rounds:
        return Rounds(self._config, self._store, self._client_id_of)

    def _messages(
        self,
        assignments: Mapping[int, Assignment],
        config: ConfigRecord,
        message_type: str,
    ) -> list[Message]:
        state, settings = self._rounds.federation.state(), self._rounds.federation.config
        writer = MessageWriter(self.arrayrecord_key, self.configrecord_key, self._rounds.model)
        if message_type == MessageType.TRAIN:
            return writer.write_train(assignments, {**config, **train_settings(state, settings)})
        return writer.write_evaluate(assignments, dict(config))

    def _take_in(self, replies: Iterable[Message]) -> dict[str, RecordDict | None]:
        """Put replies into the inbox; return their contents by client, None if not readable."""
        answered: dict[str, RecordDict | None] = {}
        for message in self._of_asked(replies, self._asked, "aggregate_train"):
            assignment = self._asked[message.metadata.src_node_id]
            name = assignment.client_id
            try:
                reply = read_train_reply(message, self._keys)
                self._rounds.submit(reply, assignment)
            except (InvalidUpdateError, TensorFileError) as error:
                _LOG.warning("aggregate_train: %s refused, %s", name, error)
                answered.setdefault(name, None)
                continue
            if reply.drift_flag is None:
                flag = self._keys.drift
                _LOG.warning("aggregate_train: %s sent no '%s', taken for no drift", name, flag)
            answered[name] = message.content
        return answered

    def _measured(self, replies: Iterable[Message]) -> dict[int, tuple[RecordDict, Measured]]:
        used: dict[int, tuple[RecordDict, Measured]] = {}
        for message in self._of_asked(replies, self._evaluating, "aggregate_evaluate"):
            node_id = message.metadata.src_node_id
            try:
                measured = _measured(message.content, self.weighted_by_key)
            except InvalidUpdateError as error:
                name = self._evaluating[node_id].client_id
                _LOG.warning("aggregate_evaluate: %s left out, %s", name, error)
                continue
            used.setdefault(node_id, (message.content, measured))
        return used

    def _of_asked(
        self, replies: Iterable[Message], asked: Mapping[int, Assignment], step: str
    ) -> list[Message]:
        """Return the replies that have a content and come from nodes that were asked."""
        received = list(replies)
        failed = [m for m in received if m.has_error()]
        answers = [m for m in received if not m.has_error()]
        _LOG.info("%s: Received %s results and %s failures", step, len(answers), len(failed))
        for message in failed:
            _LOG.info("\t> node %d: %s", message.metadata.src_node_id, message.error.reason)
        for message in answers:
            if message.metadata.src_node_id not in asked:
                node_id = message.metadata.src_node_id
                _LOG.warning("%s: node %d was not asked, its reply is left out", step, node_id)
        return [m for m in answers if m.metadata.src_node_id in asked]

    def _train_means(self, contents: Sequence[RecordDict]) -> Mapping[str, Any]:
        if not contents:
            return {}
        if self._has_own_train_metrics:
            return dict(self.train_metrics_aggr_fn(list(contents), self.weighted_by_key))
        without = {self.weighted_by_key, self._keys.drift, CONFIRM_KEY, ROUND_KEY}
        measured = [_measured(content, self.weighted_by_key) for content in contents]
        return weighted_means(measured, without=without)


def _measured(content: RecordDict, examples_key: str) -> Measured:
    metrics = metrics_of(content, examples_key)
    return Measured(n_examples_of(metrics, examples_key), metrics)


def _nodes(messages: Iterable[Message]) -> list[int]:
    return [message.metadata.dst_node_id for message in messages]


def _cohorts(state: FederationState) -> dict[str, str]:
    return {client_id: client.cohort_id for client_id, client in sorted(state.clients.items())}
