"""A plant whose model is a Keras network: one night, or the model to start from.

    python examples/keras_plant.py --base base.safetensors
    clma init --store fleet --federation north --model base.safetensors --clients plants.txt
    python examples/keras_plant.py --store fleet --federation north --client plant-01 \\
      --key plant-01.key

Keras computes with the backend that KERAS_BACKEND names, here torch unless it says otherwise. The
three sensors are made up; put your own in place of `fresh_samples`.
"""

from __future__ import annotations

import argparse
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras

from clma.adapters.keras import load_parameters, losses_of, parameters_of
from clma.client import DriftReporter, pull, read_parameters, submit, write_parameters

CENTRES = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, -1.5], [-1.5, 1.5, 0.0]])
"""Mean reading of each sensor in normal operation, under fouling, with a leak."""


def build() -> Any:
    """Return the network of the federation, the same at every plant."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    network.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return network


def fresh_samples(
    client_id: str, round_num: int, *, drifted: bool
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return a day's readings and labels; after a drift the faults have changed their meaning."""
    rng = np.random.default_rng([zlib.crc32(client_id.encode()), round_num])
    labels = rng.integers(3, size=300)
    readings = CENTRES[labels] + 0.5 * rng.standard_normal((300, 3))
    return readings.astype(np.float32), (labels + 1) % 3 if drifted else labels


def train(network: Any, readings: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    """Go on from the weights that the network has."""
    network.fit(readings, labels, epochs=10, batch_size=32, verbose=0)


def play_night(options: argparse.Namespace) -> str:
    """Pull, measure, train, submit; return a line that says what was sent."""
    mine = Path(options.folder) / options.client
    pulled = pull(
        options.store, options.federation, options.client, mine.with_suffix(".safetensors")
    )
    network = build()
    load_parameters(network, read_parameters(pulled.path))
    readings, labels = fresh_samples(options.client, pulled.round_num, drifted=options.drifted)
    reporter = DriftReporter(pulled.drift, mine.with_suffix(".drift.json"))
    drift = reporter.observe(losses_of(network, readings, labels), round_num=pulled.round_num)
    train(network, readings, labels)
    update = mine.with_suffix(".update.safetensors")
    write_parameters(update, parameters_of(network), like=pulled.path)
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
        network = build()
        train(network, *fresh_samples("laboratory", 0, drifted=False))
        write_parameters(options.base, parameters_of(network))
        print(f"{options.base}: model to start from")
    elif options.store is None:
        parser.error("give --store, or --base FILE to make the model to start from")
    else:
        print(play_night(options))


if __name__ == "__main__":
    main()
