"""A plant whose model is a scikit-learn perceptron: one night, or the model to start from.

    python examples/sklearn_plant.py --base base.safetensors
    clma init --store fleet --federation north --model base.safetensors --clients plants.txt
    python examples/sklearn_plant.py --store fleet --federation north --client plant-01 \\
      --key plant-01.key

Its three sensors are made up; put your own in place of `fresh_samples`.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from clma.adapters.sklearn import load_parameters, losses_of, parameters_of, prepare
from clma.client import DriftReporter, pull, read_parameters, submit, write_parameters

CENTRES = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, -1.5], [-1.5, 1.5, 0.0]])
"""Mean reading of each sensor in normal operation, under fouling, with a leak."""


def build() -> Any:
    """Return the network of the federation, with weights to start from."""
    network = MLPClassifier((16,), learning_rate_init=0.01, random_state=0)
    return prepare(network, n_features=3, classes=[0, 1, 2])


def fresh_samples(
    client_id: str, round_num: int, *, drifted: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a day's readings and labels; after a drift the faults have changed their meaning."""
    rng = np.random.default_rng([zlib.crc32(client_id.encode()), round_num])
    labels = rng.integers(3, size=300)
    readings = CENTRES[labels] + 0.5 * rng.standard_normal((300, 3))
    return readings, (labels + 1) % 3 if drifted else labels


def train(model: Any, readings: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    """Go on from the weights that the model has."""
    for _ in range(20):
        model.partial_fit(readings, labels)


def play_night(options: argparse.Namespace) -> str:
    """Pull, measure, train, submit; return a line that says what was sent."""
    folder = Path(options.folder)
    pulled = pull(
        options.store, options.federation, options.client, folder / f"{options.client}.safetensors"
    )
    model = build()
    load_parameters(model, read_parameters(pulled.path))
    readings, labels = fresh_samples(options.client, pulled.round_num, drifted=options.drifted)
    reporter = DriftReporter(pulled.drift, folder / f"{options.client}.drift.json")
    drift = reporter.observe(losses_of(model, readings, labels), round_num=pulled.round_num)
    train(model, readings, labels)
    update = folder / f"{options.client}.update.safetensors"
    write_parameters(update, parameters_of(model), like=pulled.path)
    receipt = submit(
        options.store,
        options.federation,
        options.client,
        tensors=update,
        n_examples=len(labels),
        drift_flag=drift.drift_detected,
        pulled=pulled,
        key=options.key,
    )
    return (
        f"{options.client}, round {receipt.round_num}: loss {drift.loss:.3f} before training, "
        f"{'drifted' if drift.drift_detected else 'no drift'}, sent {receipt.digest[:12]}"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, help="write the model to start from, and stop")
    parser.add_argument("--store", help="folder or object-store URL")
    parser.add_argument("--federation", default="north")
    parser.add_argument("--client", default="plant-01")
    parser.add_argument("--key", type=Path, help="the plant's private key")
    parser.add_argument("--folder", default=".", help="where the plant keeps its files")
    parser.add_argument("--drifted", action="store_true", help="its faults change their meaning")
    options = parser.parse_args()
    if options.base is not None:
        model = build()
        train(model, *fresh_samples("laboratory", 0, drifted=False))
        write_parameters(options.base, parameters_of(model))
        print(f"{options.base}: model to start from")
    elif options.store is None:
        parser.error("give --store, or --base FILE to make the model to start from")
    else:
        print(play_night(options))


if __name__ == "__main__":
    main()
