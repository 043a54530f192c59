"""A node: look at the received model on fresh data, train it, send it back with one flag."""

from __future__ import annotations

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clma.adapters.flower import DriftReporter
from drift_app.task import accuracy, fit, fresh_samples, losses

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train on this round's samples."""
    node, round_num = _who_and_when(msg, context)
    samples = fresh_samples(node, round_num)
    reporter = DriftReporter(context)
    reporter.look(msg, lambda arrays: losses(arrays, samples))
    trained = fit(msg.content["arrays"], samples, np.random.default_rng([node, round_num, 1]))
    return reporter.build_reply(msg, trained, num_examples=len(samples[1]))


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Measure the model of the node's own cohort."""
    node, round_num = _who_and_when(msg, context)
    samples = fresh_samples(node, round_num, held_out=True)
    right = accuracy(msg.content["arrays"], samples)
    metrics = MetricRecord({"num-examples": len(samples[1]), "accuracy": right})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


def _who_and_when(msg: Message, context: Context) -> tuple[int, int]:
    node, round_num = context.node_config["partition-id"], msg.content["config"]["server-round"]
    return int(node), int(round_num)
