"""A simulated plant that takes part like a real one: pull, train, report, submit.

It reaches the federation through `clma.client` only, so what is simulated is the data, not the way
in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.client import DriftReporter, PulledModel, choose, pull, submit
from clma.client.model_file import read_parameters
from clma.ledger.federation import Federation
from clma.parameters.tensor_file import serialize_tensors
from clma.simulation.fleet import Fleet
from clma.simulation.training import TrainingConfig, losses, train
from clma.updates.signing import SigningKey

__all__ = ["Participation", "SimulatedClient", "simulated_key", "training_rng"]


N_LOSS_BYTES = 8
"""A loss is counted as one float64; its name is known on both sides."""


@dataclass(frozen=True, slots=True)
class Participation:
    """What a client's part in a round came to.

    Parameters
    ----------
    drift_flag : bool
    bytes_up, bytes_down : int
        Models and losses that were sent and received; what all methods send beside them is left
        out.
    """

    drift_flag: bool
    bytes_up: int
    bytes_down: int


class SimulatedClient:
    """One plant of a fleet.

    Parameters
    ----------
    fleet : Fleet
    client_id : str
    folder : Path
        The plant's own disk: its model and its detector's memory survive there.
    training : TrainingConfig, optional
        Default: the fleet's.
    """

    def __init__(
        self,
        fleet: Fleet,
        client_id: str,
        folder: Path,
        training: TrainingConfig | None = None,
    ) -> None:
        self._fleet = fleet
        self._client_id = client_id
        self._folder = folder
        self._training = training or fleet.training
        folder.mkdir(parents=True, exist_ok=True)

    def take_part(self, federation: Federation) -> Participation:
        """Take part in the open round.

        Parameters
        ----------
        federation : Federation

        Returns
        -------
        Participation
            What was sent, and how many bytes went each way.
        """
        pulled = pull(
            federation, federation.name, self._client_id, self._folder / "model.safetensors"
        )
        windows, labels = self._fleet.training_windows(self._client_id, pulled.round_num)
        losses_of = self._measuring(windows, labels)
        reporter = DriftReporter(pulled.drift, self._folder / "detector.json")
        before = pulled.drift.loss_point == "before"
        reading = None
        if before and (pulled.choice_rule is not None or not pulled.choice):
            reading = reporter.observe(losses_of(pulled.path), round_num=pulled.round_num)
            if reading.drift_detected and pulled.choice_on_drift:
                pulled = pull(
                    federation, federation.name, self._client_id, pulled.path, drifted=True
                )
        choice = choose(pulled, losses_of, reporter)
        trained = train(
            read_parameters(choice.path),
            windows,
            labels,
            model=self._fleet.model,
            config=self._training,
            rng=self._rng(federation, pulled.round_num),
            proximal_mu=pulled.proximal_mu,
            learning_rate_factor=pulled.learning_rate_factor,
        )
        if reading is None:
            # IFCA and FedDrift look at the model that was chosen, Algorithm 2 at the trained one.
            seen = losses_of(choice.path) if before else self._losses(trained, windows, labels)
            reading = reporter.observe(seen, round_num=pulled.round_num)
            choice = choose(pulled, losses_of, reporter)
        update = self._folder / "update.safetensors"
        update.write_bytes(serialize_tensors(trained))
        submit(
            federation,
            federation.name,
            self._client_id,
            tensors=update,
            n_examples=len(labels),
            drift_flag=reading.drift_detected,
            confirm=choice.confirm,
            loss=reading.loss if pulled.share_loss else None,
            losses=dict(choice.losses)
            if "loss_vector" in federation.config.privacy.share
            else None,
            round_num=pulled.round_num,
            base_digest=choice.digest,
            key=simulated_key(self._fleet, self._client_id),
        )
        n_losses = 0 if pulled.choice_rule is not None else len(choice.losses)
        return Participation(
            reading.drift_detected,
            bytes_up=update.stat().st_size + N_LOSS_BYTES * n_losses,
            bytes_down=sum(path.stat().st_size for path in _files_of(pulled)),
        )

    def _measuring(
        self, windows: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> Callable[[Path], NDArray[np.float64]]:
        """Return what measures a model file on the round's data, each file once."""
        return cache(lambda path: self._losses(read_parameters(path), windows, labels))

    def _losses(
        self,
        parameters: Mapping[str, NDArray[Any]],
        windows: NDArray[np.float32],
        labels: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        return losses(parameters, windows, labels, model=self._fleet.model)

    def _rng(self, federation: Federation, round_num: int) -> np.random.Generator:
        return training_rng(self._fleet, self._client_id, round_num, seed=federation.config.seed)


def training_rng(
    fleet: Fleet, client_id: str, round_num: int, *, seed: int = 0
) -> np.random.Generator:
    """Return what shuffles a client's batches in a round: the same under every method.

    Parameters
    ----------
    fleet : Fleet
    client_id : str
    round_num : int >= 1
    seed : int, >= 0
        Of the federation.
    """
    key = [seed, round_num, fleet.client_ids.index(client_id)]
    return np.random.default_rng(np.random.SeedSequence(entropy=fleet.seed, spawn_key=key))


def simulated_key(fleet: Fleet, client_id: str) -> SigningKey:
    """Return a client's signing key: the same in every run, and secret from nobody."""
    text = f"simulated key of {client_id} in {fleet.name}, seed {fleet.seed}"
    return SigningKey.from_seed(hashlib.sha256(text.encode()).digest())


def _files_of(pulled: PulledModel) -> set[Path]:
    files = {pulled.path, *(model.path for model in pulled.choice)}
    return files if pulled.confirm_path is None else files | {pulled.confirm_path}
