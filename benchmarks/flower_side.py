"""One Flower app under one strategy, in the environment of the package that has it.

Started by `benchmarks/flower_side_by_side.py`; the import name `clma` is this project in one
environment and `fed-clma` in the other. Data, model, training and evaluation are the same lines for
all. Different is what each package tells its users to write: the strategy, and how a client comes
to its flag.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from numpy.typing import NDArray

Parameters = dict[str, NDArray[Any]]

LEARNING_RATE, MOMENTUM, BATCH, EPOCHS = 0.05, 0.9, 16, 5
N_HIDDEN, N_CLASSES = 64, 10


def initial_parameters(seed: int, n_inputs: int) -> Parameters:
    """Return a network with one hidden layer, evenly drawn (He)."""
    rng = np.random.default_rng([seed, 0xF10])

    def layer(n_out: int, n_in: int) -> NDArray[np.float32]:
        bound = np.sqrt(6 / n_in)
        return rng.uniform(-bound, bound, (n_out, n_in)).astype(np.float32)

    return {
        "hidden.weight": layer(N_HIDDEN, n_inputs),
        "hidden.bias": np.zeros(N_HIDDEN, np.float32),
        "output.weight": layer(N_CLASSES, N_HIDDEN),
        "output.bias": np.zeros(N_CLASSES, np.float32),
    }


def forward(model: Parameters, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return hidden activations and log-probabilities."""
    hidden = np.maximum(x @ model["hidden.weight"].T + model["hidden.bias"], 0)
    logits = hidden @ model["output.weight"].T + model["output.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    return hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def losses(model: Parameters, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return the cross-entropy of every sample in nats, shape (n,)."""
    return -np.asarray(forward(model, x)[1][np.arange(len(y)), y])


def train(
    model: Parameters, x: NDArray[Any], y: NDArray[Any], rng: np.random.Generator
) -> tuple[Parameters, float]:
    """Train by SGD with momentum; return the model and the mean loss while training."""
    model = {name: value.copy() for name, value in model.items()}
    velocity = {name: np.zeros_like(value) for name, value in model.items()}
    seen = []
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(len(y)), max(len(y) // BATCH, 1)):
            gradient, loss = _gradient(model, x[rows], y[rows])
            seen.append(loss)
            for name, slope in gradient.items():
                velocity[name] = MOMENTUM * velocity[name] + slope
                model[name] = (model[name] - LEARNING_RATE * velocity[name]).astype(np.float32)
    return model, float(np.mean(seen))


def _gradient(model: Parameters, x: NDArray[Any], y: NDArray[Any]) -> tuple[Parameters, float]:
    hidden, log_p = forward(model, x)
    rows = np.arange(len(y))
    error = np.exp(log_p)
    error[rows, y] -= 1
    error /= len(y)
    back = (error @ model["output.weight"]) * (hidden > 0)
    gradient = {
        "hidden.weight": back.T @ x,
        "hidden.bias": back.sum(axis=0),
        "output.weight": error.T @ hidden,
        "output.bias": error.sum(axis=0),
    }
    return gradient, float(-log_p[rows, y].mean())


def to_record(model: Parameters) -> ArrayRecord:
    """Return a model as Flower sends it."""
    return ArrayRecord({name: Array(value) for name, value in model.items()})


def to_model(record: ArrayRecord) -> Parameters:
    """Return a model as it was sent."""
    return {name: array.numpy() for name, array in record.items()}


def samples(data: Path, kind: str, msg: Message, context: Context) -> tuple[NDArray[Any], ...]:
    """Return a node's samples of the round."""
    place = f"{context.node_config['partition-id']}-{msg.content['config']['server-round']}"
    with np.load(data, allow_pickle=False) as file:
        x = file[f"{kind}-x-{place}"]
        return x.reshape(len(x), -1), file[f"{kind}-y-{place}"]


def on_train(msg: Message, context: Context, *, data: Path, method: str, seed: int) -> Message:
    """Train a node's model, and say whether it drifted as the method's users are told to."""
    x, y = samples(data, "train", msg, context)
    model = to_model(msg.content["arrays"])
    key = [seed, int(msg.content["config"]["server-round"]), context.node_config["partition-id"]]
    rng = np.random.default_rng(key)
    if method == "clma":
        from clma.adapters.flower import DriftReporter

        reporter = DriftReporter(context)
        reporter.look(msg, lambda arrays: losses(to_model(arrays), x, y))
        trained, _ = train(model, x, y, rng)
        return reporter.build_reply(msg, to_record(trained), num_examples=len(y))
    trained, loss = train(model, x, y, rng)
    if method == "fed-clma":
        from clma.client import DriftReporter as TheirReporter

        return TheirReporter(context).build_reply(
            msg, arrays=to_record(trained), loss=loss, num_examples=len(y)
        )
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": to_record(trained), "metrics": metrics}), reply_to=msg)


def on_evaluate(msg: Message, context: Context, *, data: Path) -> Message:
    """Measure the model that a node is served on what holds there."""
    x, y = samples(data, "test", msg, context)
    right = forward(to_model(msg.content["arrays"]), x)[1].argmax(axis=1) == y
    metrics = {
        "num-examples": len(y),
        "accuracy": float(right.mean()),
        "partition": int(context.node_config["partition-id"]),
    }
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


def make_strategy(method: str, **options: Any) -> FedAvg:
    """Return the strategy with its defaults and Flower's options."""
    if method == "fedavg":
        return FedAvg(**options)
    if method == "fed-clma":
        import clma

        return clma.CLMA(**options)
    from clma.adapters.flower import CLMA

    return CLMA(**options)


def run(method: str, data: Path, *, seed: int, n_rounds: int, n_nodes: int) -> dict[str, Any]:
    """Run the app in Flower's simulation; return accuracies by round and node."""
    with np.load(data, allow_pickle=False) as file:
        n_inputs = int(np.prod(file["train-x-0-1"].shape[1:]))
    rounds: list[list[float]] = []
    n_trained: list[int] = []

    def count(contents: Sequence[RecordDict], _key: str) -> MetricRecord:
        n_trained.append(len(contents))
        return MetricRecord({})

    def note(contents: Sequence[RecordDict], _key: str) -> MetricRecord:
        found = [next(iter(content.metric_records.values())) for content in contents]
        by_node = {int(m["partition"]): float(m["accuracy"]) for m in found}
        rounds.append([by_node[node] for node in range(n_nodes)])
        return MetricRecord({"accuracy": float(np.mean(rounds[-1]))})

    server, client = ServerApp(), ClientApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        strategy = make_strategy(
            method,
            train_metrics_aggr_fn=count,
            evaluate_metrics_aggr_fn=note,
            min_train_nodes=n_nodes,
            min_evaluate_nodes=n_nodes,
            min_available_nodes=n_nodes,
        )
        start = to_record(initial_parameters(seed, n_inputs))
        strategy.start(grid, start, num_rounds=n_rounds)

    client.train()(partial(on_train, data=data, method=method, seed=seed))
    client.evaluate()(partial(on_evaluate, data=data))
    run_simulation(server, client, n_nodes, backend_config={"client_resources": {"num_cpus": 1}})
    if n_trained != [n_nodes] * n_rounds:
        sys.exit(f"{n_trained} replies were used by round, wanted {n_nodes} each")
    return {"accuracy": rounds}


def main() -> None:
    """Run one app and leave its figures in a file."""
    parser = argparse.ArgumentParser()
    for name in ("method", "data", "out"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("seed", "n-rounds", "n-nodes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    figures = run(
        asked.method,
        Path(asked.data),
        seed=asked.seed,
        n_rounds=asked.n_rounds,
        n_nodes=asked.n_nodes,
    )
    Path(asked.out).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
