"""A plant whose model is a torch network: one night, or the model to start from.

    python examples/torch_plant.py --base base.safetensors
    clma init --store fleet --federation north --model base.safetensors --clients plants.txt
    python examples/torch_plant.py --store fleet --federation north --client plant-01 \\
      --key plant-01.key

With --personal-head, given everywhere, every plant keeps the last layer for itself: the base model
holds the body only, and the plants share nothing else. Its three sensors are made up; put your own
in place of `fresh_samples`.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from clma.adapters.torch import load_parameters, parameters_of
from clma.adapters.torch_fedprox import proximal_term
from clma.adapters.torch_personal import keep_personal, restore_personal
from clma.client import DriftReporter, pull, read_parameters, submit, write_parameters

CENTRES = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, -1.5], [-1.5, 1.5, 0.0]])
"""Mean reading of each sensor in normal operation, under fouling, with a leak."""

HEAD = ("head.*",)


def build() -> torch.nn.Module:
    """Return the network of the federation, the same at every plant."""
    torch.manual_seed(0)
    layers = {
        "body": torch.nn.Linear(3, 16),
        "act": torch.nn.ReLU(),
        "head": torch.nn.Linear(16, 3),
    }
    network = torch.nn.Sequential()
    for name, layer in layers.items():
        network.add_module(name, layer)
    return network


def fresh_samples(
    client_id: str, round_num: int, *, drifted: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a day's readings and labels; after a drift the faults have changed their meaning."""
    rng = np.random.default_rng([zlib.crc32(client_id.encode()), round_num])
    labels = rng.integers(3, size=300)
    readings = CENTRES[labels] + 0.5 * rng.standard_normal((300, 3))
    shown = (labels + 1) % 3 if drifted else labels
    return torch.from_numpy(readings.astype(np.float32)), torch.from_numpy(shown)


def losses_of(
    network: torch.nn.Module, readings: torch.Tensor, labels: torch.Tensor
) -> list[float]:
    """Return the cross-entropy of each sample."""
    with torch.no_grad():
        losses: list[float] = cross_entropy(network(readings), labels, reduction="none").tolist()
    return losses


def train(
    network: torch.nn.Module,
    readings: torch.Tensor,
    labels: torch.Tensor,
    *,
    mu: float = 0.0,
    personal: tuple[str, ...] = (),
) -> None:
    """Go on from the weights that the network has; `mu` pulls it back to them (FedProx)."""
    pull_back = proximal_term(network, mu=mu, personal=personal)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        for batch in torch.split(torch.randperm(len(labels)), 32):
            optimizer.zero_grad()
            loss = cross_entropy(network(readings[batch]), labels[batch]) + pull_back()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def play_night(options: argparse.Namespace) -> str:
    """Pull, measure, train, submit; return a line that says what was sent."""
    personal = HEAD if options.personal_head else ()
    mine = Path(options.folder) / options.client
    pulled = pull(
        options.store, options.federation, options.client, mine.with_suffix(".safetensors")
    )
    network = build()
    load_parameters(network, read_parameters(pulled.path), personal=personal)
    if personal:
        restore_personal(network, mine.with_suffix(".head.safetensors"), personal=personal)
    readings, labels = fresh_samples(options.client, pulled.round_num, drifted=options.drifted)
    reporter = DriftReporter(pulled.drift, mine.with_suffix(".drift.json"))
    drift = reporter.observe(losses_of(network, readings, labels), round_num=pulled.round_num)
    train(network, readings, labels, mu=pulled.proximal_mu, personal=personal)
    update = mine.with_suffix(".update.safetensors")
    write_parameters(update, parameters_of(network, personal=personal), like=pulled.path)
    if personal:
        keep_personal(network, mine.with_suffix(".head.safetensors"), personal=personal)
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
    parser.add_argument("--personal-head", action="store_true", help="keep the last layer here")
    options = parser.parse_args()
    if options.base is not None:
        network = build()
        train(network, *fresh_samples("laboratory", 0, drifted=False))
        personal = HEAD if options.personal_head else ()
        write_parameters(options.base, parameters_of(network, personal=personal))
        print(f"{options.base}: model to start from")
    elif options.store is None:
        parser.error("give --store, or --base FILE to make the model to start from")
    else:
        print(play_night(options))


if __name__ == "__main__":
    main()
