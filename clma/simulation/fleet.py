"""A fleet: clients, what each of them sees in each round, and the truth about it.

Everything is a pure function of (seed, client, round): no call changes another one's answer, so
clients may be simulated in any order, on any number of threads, or again.

Examples
--------
>>> from clma.simulation.recipes import load_fleet
>>> fleet = load_fleet(None, "plant", seed=0)
>>> windows, labels = fleet.training_windows("plant-03", 1)
>>> windows.shape, labels.shape, fleet.concept("plant-03", 1)
((96, 17, 30), (96,), 'base')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clma.adapters.factory import load_factory
from clma.simulation.schedule import Concept, Schedule
from clma.simulation.training_config import TrainingConfig

__all__ = ["Fleet", "ModelSpec", "WindowSource", "Windows"]

Windows = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Inputs of shape (n, ...) and their class indices of shape (n,).

Windows of a plant have the shape (n, n_variables, window), images (n, channels, height, width).
"""

_TRAINING = 1  # stream numbers: training and held-out draws must never share a generator
_HELD_OUT = 2
_NOISE = 5  # 3 and 4 are the streams of the data sets


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which module the fleet's parameters belong to.

    Parameters
    ----------
    factory : str
        ``package.module:factory``; it takes the arguments and a `seed`, and equal ones give equal
        initial weights.
    arguments : tuple of (name, value)
        Keyword arguments of the factory, sorted by name.
    """

    factory: str = "clma.simulation.cnn:cnn1d"
    arguments: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, factory: str, **arguments: int) -> ModelSpec:
        """Build one from keyword arguments, in any order."""
        return cls(factory, tuple(sorted(arguments.items())))


class WindowSource(Protocol):
    """Where windows of a condition come from; labels are as recorded, before any relabelling."""

    def training(
        self, client_id: str, condition: str, n_windows: int, rng: np.random.Generator
    ) -> Windows:
        """Return `n_windows` windows of a client's training data; fewer where it has no more."""

    def held_out(self, client_id: str, condition: str, rng: np.random.Generator) -> Windows:
        """Return windows that no client ever trains on."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Clients with their data and their drifts.

    Parameters
    ----------
    name : str
        Of the recipe.
    seed : int, >= 0
        Of the data and of the initial model.
    schedule : Schedule
        The truth.
    source : WindowSource
    classes : tuple of str
        Names of the class indices.
    model : ModelSpec
        What every client trains, as `clma.simulation.training` takes it.
    n_windows : int
        Training windows per client and round, at most.
    default_rounds : int
        Rounds that cover the schedule.
    training : TrainingConfig
        How every client trains.
    encoder : str
        Fingerprint of the frozen encoder that all windows are embeddings of; empty: they are none.
    """

    name: str
    seed: int
    schedule: Schedule
    source: WindowSource
    classes: tuple[str, ...]
    model: ModelSpec
    n_windows: int = 96
    default_rounds: int = 10
    training: TrainingConfig = field(default_factory=TrainingConfig)
    encoder: str = ""

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Ids of all clients, sorted."""
        return self.schedule.client_ids

    @property
    def drifted_clients(self) -> tuple[str, ...]:
        """Ids of the clients that drift at some time, sorted."""
        return tuple(sorted({event.client_id for event in self.schedule.events}))

    @property
    def model_factory(self) -> str:
        """``package.module:factory`` of the fleet's model."""
        return self.model.factory

    @property
    def model_arguments(self) -> dict[str, int]:
        """Keyword arguments of `model_factory`."""
        return dict(self.model.arguments)

    def initial_parameters(self) -> dict[str, NDArray[Any]]:
        """Return the weights of round 1, drawn from the fleet's seed."""
        from clma.adapters.torch import parameters_of

        build = load_factory(self.model.factory)
        return parameters_of(build(**self.model_arguments, seed=self.seed))

    def concept(self, client_id: str, round_num: int) -> str:
        """Return the name of the concept that holds; in a gradual drift the prevailing one."""
        return self.schedule.concept(client_id, round_num).name

    def drifts(self, client_id: str, round_num: int) -> bool:
        """Return whether the client's concept is another one than in the round before."""
        return self.concept(client_id, round_num) != self.concept(client_id, round_num - 1)

    def changes(self, client_id: str, round_num: int) -> bool:
        """Return whether the client's data changed; true on each step of a gradual drift."""
        before, now = (self.schedule.mixture(client_id, r) for r in (round_num - 1, round_num))
        return before != now

    def training_windows(self, client_id: str, round_num: int) -> Windows:
        """Draw a client's windows of one round, in random order.

        Raises
        ------
        UnknownClientError
            If the fleet has no such client.
        """
        mixture = self.schedule.mixture(client_id, round_num)
        rng = self._rng(_TRAINING, client_id, round_num)
        drawn = [
            self._draw(client_id, concept, n_windows, rng)
            for concept, n_windows in _counts(mixture, self.n_windows).items()
        ]
        windows = np.concatenate([windows for windows, _ in drawn])
        labels = np.concatenate([labels for _, labels in drawn])
        order = rng.permutation(len(labels))
        return windows[order], self._mislabel(labels[order], client_id, round_num)

    def test_windows(self, client_id: str, round_num: int) -> Windows:
        """Return held-out windows of the concept that holds; the same in all its rounds.

        Raises
        ------
        UnknownClientError
            If the fleet has no such client.
        """
        concept = self.schedule.concept(client_id, round_num)
        rng = self._rng(_HELD_OUT, client_id, 0)
        windows, labels = self.source.held_out(client_id, concept.condition, rng)
        return windows, concept.relabel(labels)

    def _mislabel(
        self, labels: NDArray[np.int64], client_id: str, round_num: int
    ) -> NDArray[np.int64]:
        """Draw some labels anew where the night is a noisy one; a copy then."""
        share = self.schedule.label_noise(client_id, round_num)
        if share == 0.0:
            return labels
        rng = self._rng(_NOISE, client_id, round_num)
        drawn = rng.integers(len(self.classes), size=len(labels))
        return np.where(rng.random(len(labels)) < share, drawn, labels)

    def _draw(
        self, client_id: str, concept: Concept, n_windows: int, rng: np.random.Generator
    ) -> Windows:
        windows, labels = self.source.training(client_id, concept.condition, n_windows, rng)
        return windows, concept.relabel(labels)

    def _rng(self, stream: int, client_id: str, round_num: int) -> np.random.Generator:
        client = self.client_ids.index(client_id)
        return np.random.default_rng([self.seed, stream, client, round_num])


def _counts(mixture: Mapping[Concept, float], n_windows: int) -> dict[Concept, int]:
    # Rounded cumulative shares: the counts add up exactly, whatever the shares.
    edges = np.rint(np.cumsum([0.0, *mixture.values()]) * n_windows).astype(int)
    return {c: int(n) for c, n in zip(mixture, np.diff(edges), strict=True) if n > 0}
