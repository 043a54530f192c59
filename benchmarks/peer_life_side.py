"""The public package `fed-clma` as the server of a simulated fleet, in an environment of its own.

Started by `benchmarks/peer_life.py` with that environment's Python; the import name `clma` is the
other package's here. Its strategy and its detector are what they are: `CLMA.configure_train` says
what each client is sent, `LossThresholdDetector` looks at each client's loss,
`CLMA.aggregate_train` decides. Only the network between them is missing. A line of JSON on standard
input is a request, a line on standard output its answer; arrays travel as ``.npz`` files.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from clma.interop import (
    DRIFT_KEY,
    LOSS_KEY,
    NUM_EXAMPLES_KEY,
    to_arrayrecord,
    to_paramdict,
)
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import clma
from clma import CLMA
from clma.drift import LossThresholdDetector

Params = dict[str, Any]


class _Nodes:
    """What a strategy asks of the network: who is there."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._node_ids = list(node_ids)

    def get_node_ids(self) -> list[int]:
        return self._node_ids


class PeerServer:
    """One federation under the package's strategy, with its defaults.

    Parameters
    ----------
    base : mapping of name to ndarray
        Initial model.
    n_clients : int
        Clients are the nodes 1 ... n.
    """

    def __init__(self, base: Params, n_clients: int) -> None:
        # Flower's messages want to know which run they belong to.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._strategy = CLMA()
        self._nodes = _Nodes(range(1, n_clients + 1))
        self._detectors = {
            node: LossThresholdDetector(gamma=0.1) for node in self._nodes.get_node_ids()
        }
        self._arrays = to_arrayrecord(base)
        self._sent: list[Message] = []

    def send(self, round_num: int) -> dict[int, Params]:
        """Return the model that each client is sent in a round."""
        self._sent = list(
            self._strategy.configure_train(
                round_num,
                self._arrays,
                ConfigRecord(),
                self._nodes,  # type: ignore[arg-type]
            )
        )
        key = self._strategy.arrayrecord_key
        return {m.metadata.dst_node_id: to_paramdict(m.content[key]) for m in self._sent}

    def receive(
        self,
        round_num: int,
        models: dict[int, Params],
        losses: dict[int, float],
        n_examples: dict[int, int],
    ) -> dict[int, bool]:
        """Take the clients' models and losses; return their drift flags."""
        flags = {node: self._detectors[node].update(losses[node]) for node in losses}
        replies = [
            Message(self._content(models, losses, flags, n_examples, m), reply_to=m)
            for m in self._sent
        ]
        arrays, _ = self._strategy.aggregate_train(round_num, replies)
        if arrays is not None:
            self._arrays = arrays
        return {node: bool(flag) for node, flag in flags.items()}

    def cohorts(self) -> dict[int, int]:
        """Return every client's cohort."""
        registry = self._strategy.registry
        return {node: int(registry.cohort_of(node)) for node in self._nodes.get_node_ids()}

    def serving(self) -> dict[int, Params]:
        """Return the model of every client's cohort, as it stands after the round."""
        registry = self._strategy.registry
        return {node: registry.params(cohort) for node, cohort in self.cohorts().items()}

    def _content(
        self,
        models: dict[int, Params],
        losses: dict[int, float],
        flags: dict[int, bool],
        n_examples: dict[int, int],
        sent: Message,
    ) -> RecordDict:
        node = sent.metadata.dst_node_id
        metrics = {
            DRIFT_KEY: int(flags[node]),
            LOSS_KEY: losses[node],
            NUM_EXAMPLES_KEY: n_examples[node],
        }
        return RecordDict(
            {
                self._strategy.arrayrecord_key: to_arrayrecord(models[node]),
                "metrics": MetricRecord(metrics),
            }
        )


def read(path: str) -> Params:
    """Read named arrays."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def write(models: dict[int, Params], folder: Path) -> dict[int, str]:
    """Write one file a client; equal models are written once."""
    written: dict[int, str] = {}
    paths = {}
    for node, params in models.items():
        if id(params) not in written:
            written[id(params)] = str(folder / f"sent-{node}.npz")
            np.savez(written[id(params)], **params)
        paths[node] = written[id(params)]
    return paths


def answer(server: PeerServer, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Carry one request out."""
    round_num = request["round"]
    if request["do"] == "send":
        return {"models": write(server.send(round_num), folder)}
    flags = server.receive(
        round_num,
        {int(node): read(path) for node, path in request["models"].items()},
        {int(node): loss for node, loss in request["losses"].items()},
        {int(node): n for node, n in request["n_examples"].items()},
    )
    return {
        "flags": flags,
        "cohorts": server.cohorts(),
        "models": write(server.serving(), folder),
    }


def main() -> None:
    """Answer requests until there are no more."""
    if Path(sys.prefix) not in Path(str(clma.__file__)).parents:
        sys.exit(f"clma is {clma.__file__}, wanted the one of {sys.prefix}")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    start = json.loads(sys.stdin.readline())
    server = PeerServer(read(start["base"]), start["n_clients"])
    print(json.dumps({"version": version("fed-clma")}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(server, json.loads(line), Path(start["folder"]))), flush=True)


if __name__ == "__main__":
    main()
