"""Who drifts, when, and to which concept: the truth that a method is measured against.

A concept is an operating condition together with a labelling. A family is the path of concepts that
drifted clients take, one step at each event; before its first event a client is at `BASE`, unless
the schedule says where else it starts.

Examples
--------
>>> schedule = build_schedule("stagger", client_names(10), [[Concept("b", "b")]])
>>> schedule.concept("plant-03", 2).name, schedule.concept("plant-03", 3).name
('base', 'b')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError, UnknownClientError

__all__ = [
    "BASE",
    "EVENT_ROUNDS",
    "SHAPES",
    "Concept",
    "DriftEvent",
    "NoisyNight",
    "Schedule",
    "build_schedule",
    "client_names",
]

EVENT_ROUNDS = (3, 5, 7, 9)  # the paper's experiment: drifts at these rounds on 8 of 10 clients
RAMP_ROUNDS = 3
SAME_ROUND = 5
SHAPES = ("stationary", "stagger", "repeat", "recurring", "gradual", "same")


@dataclass(frozen=True, slots=True)
class Concept:
    """What holds at a client: where the plant runs and what its operators call it.

    Parameters
    ----------
    name : str
        Equal names mean the same concept; clients of one concept belong in one cohort.
    condition : str
        Operating condition that windows come from; ``base`` is the one at the start.
    relabelling : tuple of int, or None
        Class ``relabelling[c]`` is what a window of class ``c`` is called now; None: as recorded.
    """

    name: str
    condition: str = "base"
    relabelling: tuple[int, ...] | None = None

    def relabel(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the labels as they are called under this concept; shape (n,), a copy."""
        if self.relabelling is None:
            return labels.copy()
        return np.array(self.relabelling, dtype=np.int64)[labels]


BASE = Concept("base")


@dataclass(frozen=True, slots=True)
class DriftEvent:
    """A client moves to another concept.

    Parameters
    ----------
    round_num : int, >= 2
        First round with data of the new concept.
    client_id : str
    concept : Concept
    ramp_rounds : int, >= 1
        The new concept's share of the data rises to 1 over so many rounds; 1 is a sudden drift.
    """

    round_num: int
    client_id: str
    concept: Concept
    ramp_rounds: int = 1

    def share(self, round_num: int) -> float:
        """Return the share of the new concept in a round, in [0, 1]."""
        return min(max((round_num - self.round_num + 1) / self.ramp_rounds, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class NoisyNight:
    """A client's labels of one round are partly wrong; its concept is what it was.

    Parameters
    ----------
    round_num : int, >= 1
    client_id : str
    share : float in [0, 1]
        Of the round's examples that get a label drawn at random.
    """

    round_num: int
    client_id: str
    share: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """All drifts of a fleet.

    Parameters
    ----------
    name : str
    client_ids : tuple of str
        Sorted.
    events : tuple of DriftEvent
        By rising round; the events of one client do not overlap.
    joins : tuple of (client id, round)
        Clients that are not there from the first round on, and when they come.
    noisy_nights : tuple of NoisyNight
        At most one a client and round.
    starts : tuple of (client id, Concept)
        Clients that are at another concept than `BASE` from the first round on.
    tells_groups : bool
        Whether the concepts say which clients belong together; False where clients differ by
        degrees, so that no partition is the true one.
    """

    name: str
    client_ids: tuple[str, ...]
    events: tuple[DriftEvent, ...]
    joins: tuple[tuple[str, int], ...] = ()
    noisy_nights: tuple[NoisyNight, ...] = ()
    starts: tuple[tuple[str, Concept], ...] = ()
    tells_groups: bool = True

    def first_round(self, client_id: str) -> int:
        """Return the first round that a client takes part in."""
        return dict(self.joins).get(client_id, 1)

    def label_noise(self, client_id: str, round_num: int) -> float:
        """Return the share of a client's labels that are drawn at random in a round."""
        nights = (n for n in self.noisy_nights if n.client_id == client_id)
        return next((n.share for n in nights if n.round_num == round_num), 0.0)

    def events_of(self, client_id: str) -> tuple[DriftEvent, ...]:
        """Return a client's drifts, first one first.

        Raises
        ------
        UnknownClientError
            If the fleet has no such client.
        """
        if client_id not in self.client_ids:
            raise UnknownClientError(f"client {client_id!r} is not in the fleet {self.name!r}")
        return tuple(event for event in self.events if event.client_id == client_id)

    def mixture(self, client_id: str, round_num: int) -> Mapping[Concept, float]:
        """Return the concepts in a client's data and their shares; they add up to 1."""
        mixture = {dict(self.starts).get(client_id, BASE): 1.0}
        for event in self.events_of(client_id):
            share = event.share(round_num)
            mixture = {c: (1.0 - share) * s for c, s in mixture.items()}
            mixture[event.concept] = mixture.get(event.concept, 0.0) + share
        return {c: s for c, s in mixture.items() if s > 0.0}

    def concept(self, client_id: str, round_num: int) -> Concept:
        """Return the concept with the largest share; of equals the newer one."""
        mixture = self.mixture(client_id, round_num)
        return max(reversed(list(mixture)), key=lambda concept: mixture[concept])


def client_names(n_clients: int) -> tuple[str, ...]:
    """Return ``plant-01`` ..., padded so that the order of the names is that of the numbers."""
    width = max(2, len(str(n_clients)))
    return tuple(f"plant-{number:0{width}d}" for number in range(1, n_clients + 1))


def build_schedule(
    shape: str,
    client_ids: Sequence[str],
    families: Sequence[Sequence[Concept]],
) -> Schedule:
    """Spread drifts over a fleet: the first fifth of the clients stays, the rest drifts.

    Only in ``same`` nobody stays.

    Parameters
    ----------
    shape : {"stationary", "stagger", "repeat", "recurring", "gradual", "same"}
        ``stagger``: at each of the rounds 3, 5, 7, 9 a quarter of the drifting clients moves, each
        once, in turn to the first concept of each family; ``repeat``: all of them move at each of
        these rounds, along their family's path; ``recurring``: all move at rounds 3, 5, 7 to the
        first concept, back, and there again; ``gradual``: as `stagger`, but over three rounds;
        ``same``: the whole fleet moves at round 5 to the first concept of the first family.
    client_ids : sequence of str
        Sorted.
    families : sequence of paths
        Dealt to the drifting clients in turn. A path shorter than the events starts over.

    Raises
    ------
    InvalidConfigError
        If the shape is unknown or there are drifts without families.
    """
    if shape not in SHAPES:
        raise InvalidConfigError(
            f"schedule {shape!r} is unknown, wanted one of {', '.join(SHAPES)}"
        )
    if shape != "stationary" and not (families and all(families)):
        raise InvalidConfigError(f"schedule {shape!r} needs families of at least one concept")
    if shape == "same":
        together = tuple(DriftEvent(SAME_ROUND, c, families[0][0]) for c in client_ids)
        return Schedule(shape, tuple(client_ids), together)
    events: list[DriftEvent] = []
    drifting = () if shape == "stationary" else client_ids[len(client_ids) // 5 :]
    for place, client_id in enumerate(drifting):
        path = families[place % len(families)]
        if shape in {"stagger", "gradual"}:
            # Neighbours go together, so that with 8 of 10 clients each event has one per family.
            start = EVENT_ROUNDS[place * len(EVENT_ROUNDS) // len(drifting)]
            ramp = RAMP_ROUNDS if shape == "gradual" else 1
            events.append(DriftEvent(start, client_id, path[0], ramp))
        elif shape == "recurring":
            steps = zip(EVENT_ROUNDS[:3], (path[0], BASE, path[0]), strict=True)
            events += [DriftEvent(start, client_id, concept) for start, concept in steps]
        else:
            events += [
                DriftEvent(start, client_id, path[step % len(path)])
                for step, start in enumerate(EVENT_ROUNDS)
            ]
    events.sort(key=lambda event: (event.round_num, event.client_id))
    return Schedule(shape, tuple(client_ids), tuple(events))
