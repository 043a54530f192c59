"""Drifts over sixty nights: what a fleet goes through in two months rather than in ten rounds.

Short schedules show whether a drift is found and answered. Long ones show whether the answers keep:
whether a concept that comes back finds its cohort, whether cohorts that were founded in vain go
away, and whether a client that cannot decide stops moving others about.

Examples
--------
>>> from clma.simulation.schedule import client_names
>>> schedule = build_long_schedule("long-late", client_names(10), [[Concept("b")], [Concept("x")]])
>>> schedule.first_round("plant-10"), schedule.concept("plant-10", 30).name
(30, 'x')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clma.errors import InvalidConfigError
from clma.simulation.schedule import (
    BASE,
    Concept,
    DriftEvent,
    NoisyNight,
    Schedule,
    build_schedule,
)
from clma.simulation.standing_schedules import STANDING_SHAPES, build_standing_schedule

__all__ = ["LONG_ROUNDS", "LONG_SHAPES", "build_long_schedule", "default_rounds", "schedule_of"]

LONG_ROUNDS = 60
SEASONS = ((6, 16), (26, 38), (48, LONG_ROUNDS + 1))
"""First round of a season, and first round after it."""
RARE_ROUNDS = (8, 20, 32, 44)
FLAPPING_ROUNDS = tuple(
    r for r in range(5, LONG_ROUNDS + 1) if (r - 5) % 5 in (0, 2)
)  # two nights at one concept, three at the other
CREEP_ROUNDS = (6, 18, 30, 42)
CREEP_RAMP = 9
LATE_ROUNDS = (15, 18, 24, 30)
LATE_AND_QUIET = 20
FORK_ROUNDS = (5, 20, 35, 48)
NOISY_ROUNDS = range(4, 57)  # the last nights are quiet: whoever was sent away can be home again
EVERY_NOISY = 11
EVERY_WILD = 23
NOISY_SHARE = 0.35
WILD_SHARE = 0.9

Fork = Sequence[Sequence[Concept]]


def schedule_of(
    shape: str, client_ids: Sequence[str], families: Sequence[Sequence[Concept]]
) -> Schedule:
    """Build a schedule of any of the three modules; the others have the parameters."""
    if shape in STANDING_SHAPES:
        return build_standing_schedule(shape, client_ids, families)
    build = build_long_schedule if shape in LONG_SHAPES else build_schedule
    return build(shape, client_ids, families)


def default_rounds(shape: str) -> int:
    """Return how many rounds cover a schedule."""
    return LONG_ROUNDS if shape in LONG_SHAPES else 10


def build_long_schedule(
    shape: str, client_ids: Sequence[str], families: Sequence[Sequence[Concept]]
) -> Schedule:
    """Spread sixty rounds of drifts over a fleet; its first fifth never drifts.

    Parameters
    ----------
    shape : str
        One of `LONG_SHAPES`. ``long-recurring``: each family's concept comes for three seasons,
        with weeks at the base between them. ``long-flapping``: the last fifth of the fleet changes
        concept every two or three nights, the others once. ``long-creep``: a concept's share rises
        over nine rounds. ``long-late``: two fifths join at the rounds 15 to 30 and have drifted
        before. ``long-reconverge``: families drift apart, to one and the same concept, apart again
        and all home. ``long-noise``: nobody drifts, but single clients have nights with wrong
        labels.
    client_ids : sequence of str
        Sorted.
    families : sequence of paths
        Dealt to the drifting clients in turn; only the first concept of each is used.

    Raises
    ------
    InvalidConfigError
        If the shape is unknown or there are drifts without families.
    """
    if shape not in LONG_SHAPES:
        raise InvalidConfigError(
            f"long schedule {shape!r} is unknown, wanted one of {', '.join(LONG_SHAPES)}"
        )
    if not (families and all(families)):
        raise InvalidConfigError(f"schedule {shape!r} needs families of at least one concept")
    return LONG_SHAPES[shape](shape, tuple(client_ids), families)


def _recurring(shape: str, client_ids: tuple[str, ...], families: Fork) -> Schedule:
    events = []
    for place, client_id in enumerate(_drifting(client_ids)):
        lag = place // len(families) % 3  # plants do not change over in one night
        for start, end in SEASONS:
            events.append(DriftEvent(start + lag, client_id, _first(families, place)))
            if end <= LONG_ROUNDS:
                events.append(DriftEvent(end + lag, client_id, BASE))
    return _schedule(shape, client_ids, events)


def _flapping(shape: str, client_ids: tuple[str, ...], families: Fork) -> Schedule:
    drifting = _drifting(client_ids)
    restless = drifting[-max(1, len(client_ids) // 5) :]
    settled = drifting[: -len(restless)]
    events = [
        DriftEvent(_spread(RARE_ROUNDS, place, settled), client_id, _first(families, place))
        for place, client_id in enumerate(settled)
    ]
    for place, client_id in enumerate(restless):
        away = _first(families, place)
        events += [
            DriftEvent(r, client_id, (away, BASE)[turn % 2])
            for turn, r in enumerate(FLAPPING_ROUNDS)
        ]
    return _schedule(shape, client_ids, events)


def _creep(shape: str, client_ids: tuple[str, ...], families: Fork) -> Schedule:
    drifting = _drifting(client_ids)
    return _schedule(
        shape,
        client_ids,
        [
            DriftEvent(
                _spread(CREEP_ROUNDS, place, drifting),
                client_id,
                _first(families, place),
                CREEP_RAMP,
            )
            for place, client_id in enumerate(drifting)
        ],
    )


def _late(shape: str, client_ids: tuple[str, ...], families: Fork) -> Schedule:
    drifting = _drifting(client_ids)
    early = drifting[: len(drifting) // 2]
    late = drifting[len(early) :]
    events = [
        DriftEvent(_spread((5, 9), place, early), client_id, _first(families, place))
        for place, client_id in enumerate(early)
    ]
    events += [
        DriftEvent(2, client_id, _first(families, place)) for place, client_id in enumerate(late)
    ]
    joins = {client_id: _spread(LATE_ROUNDS, place, late) for place, client_id in enumerate(late)}
    quiet = client_ids[: len(client_ids) // 5]
    joins |= dict.fromkeys(quiet[1:][-1:], LATE_AND_QUIET)
    return _schedule(shape, client_ids, events, joins)


def _reconverge(shape: str, client_ids: tuple[str, ...], families: Fork) -> Schedule:
    meeting = _meeting(families)
    events = []
    for place, client_id in enumerate(_drifting(client_ids)):
        own = _first(families, place)
        steps = zip(FORK_ROUNDS, (own, meeting, own, BASE), strict=True)
        events += [DriftEvent(start, client_id, concept) for start, concept in steps]
    return _schedule(shape, client_ids, events)


def _noise(shape: str, client_ids: tuple[str, ...], families: Fork) -> Schedule:  # noqa: ARG001
    nights = []
    for place, client_id in enumerate(client_ids):
        for round_num in NOISY_ROUNDS:
            if (round_num + 5 * place) % EVERY_WILD == 0:
                nights.append(NoisyNight(round_num, client_id, WILD_SHARE))
            elif (7 * round_num + 3 * place) % EVERY_NOISY == 0:
                nights.append(NoisyNight(round_num, client_id, NOISY_SHARE))
    return Schedule(shape, client_ids, (), noisy_nights=tuple(nights))


def _drifting(client_ids: tuple[str, ...]) -> tuple[str, ...]:
    return client_ids[len(client_ids) // 5 :]


def _first(families: Fork, place: int) -> Concept:
    return families[place % len(families)][0]


def _spread(rounds: Sequence[int], place: int, clients: Sequence[str]) -> int:
    """Return the round of the `place`-th client; neighbours go together."""
    return rounds[place * len(rounds) // len(clients)]


def _meeting(families: Fork) -> Concept:
    """Return a concept that is neither the base nor any family's first one."""
    named = [path[0].relabelling for path in families if path[0].relabelling is not None]
    if named:
        return Concept("labels-reversed", relabelling=tuple(reversed(range(len(named[0])))))
    return families[0][-1]


def _schedule(
    shape: str,
    client_ids: tuple[str, ...],
    events: list[DriftEvent],
    joins: Mapping[str, int] | None = None,
) -> Schedule:
    events.sort(key=lambda event: (event.round_num, event.client_id))
    return Schedule(shape, client_ids, tuple(events), tuple(sorted((joins or {}).items())))


LONG_SHAPES: Mapping[str, Callable[[str, tuple[str, ...], Fork], Schedule]] = {
    "long-recurring": _recurring,
    "long-flapping": _flapping,
    "long-creep": _creep,
    "long-late": _late,
    "long-reconverge": _reconverge,
    "long-noise": _noise,
}
"""What builds each of the schedules."""
