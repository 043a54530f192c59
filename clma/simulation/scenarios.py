"""Scenarios of the comparison by name, ``<data>/<schedule>``, for example ``digits/stagger``.

| schedule | who drifts, and when |
|---|---|
| stationary | nobody |
| stagger | two families, a client of each at the rounds 3, 5, 7, 9, each once |
| repeat | all eight drifting clients at each of these rounds |
| covariate | as `stagger`, to other conditions instead of other labels |
| mixed | as `stagger`, one family of each kind |
| gradual | as `stagger`, over three rounds each; Cranfield: as recorded |
| recurring | all eight there, back, and there again at the rounds 3, 5, 7 |
| same | all ten at round 5, to one concept; gas: all age together |
| skew | as `stagger`, every client with its own class shares, Dirichlet 0.5 |
| dirichlet-0.1, dirichlet-0.5 | nobody; every client has class shares of its own |
| class-groups | nobody; three groups know other classes each; Cranfield: as recorded |
| style-groups | nobody; groups see the same classes, each in a look of its own |
| long-recurring | sixty rounds: two concepts come for three seasons each, and go |
| long-flapping | two clients change every two or three nights, the others once |
| long-creep | as `gradual`, over nine rounds each |
| long-late | four clients join at the rounds 15 to 30 and have drifted before |
| long-reconverge | two families drift apart, to one concept, apart again, and home |
| long-noise | nobody, but single clients have nights with wrong labels |

Examples
--------
>>> fleet = load_scenario("plant/same", seed=0)
>>> {fleet.concept(client_id, 5) for client_id in fleet.client_ids}
{'swap-a'}
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clma.errors import InvalidConfigError
from clma.simulation.busi import load_busi
from clma.simulation.cifar10 import N_IMAGES, cifar10_fleet, cifar10_images
from clma.simulation.cranfield import cranfield_fleet
from clma.simulation.digits import digits_fleet
from clma.simulation.fleet import Fleet
from clma.simulation.frozen import ImageSet, frozen_fleet
from clma.simulation.gas import gas_fleet
from clma.simulation.image_folder import LAYOUTS, published_images
from clma.simulation.long_schedules import LONG_SHAPES
from clma.simulation.pronto import pronto_fleet
from clma.simulation.recipes import plant_fleet

__all__ = [
    "ALLOWED",
    "SCHEDULES",
    "is_embedded",
    "load_scenario",
    "recorded_folder",
    "scenario_names",
]

DIRICHLET = 0.5


@dataclass(frozen=True, slots=True)
class ScenarioSchedule:
    """What the second part of a scenario's name says.

    Parameters
    ----------
    shape : str
        See `clma.simulation.long_schedules.schedule_of`.
    kind : {"covariate", "concept", "mixed"}
    skew : float, > 0, or None
        Dirichlet parameter of each client's class shares.
    """

    shape: str
    kind: str = "concept"
    skew: float | None = None


SCHEDULES = {
    "stationary": ScenarioSchedule("stationary"),
    "stagger": ScenarioSchedule("stagger"),
    "repeat": ScenarioSchedule("repeat"),
    "covariate": ScenarioSchedule("stagger", "covariate"),
    "mixed": ScenarioSchedule("stagger", "mixed"),
    "gradual": ScenarioSchedule("gradual"),
    "recurring": ScenarioSchedule("recurring"),
    "same": ScenarioSchedule("same"),
    "skew": ScenarioSchedule("stagger", "concept", DIRICHLET),
    "dirichlet-0.1": ScenarioSchedule("dirichlet", skew=0.1),
    "dirichlet-0.5": ScenarioSchedule("dirichlet", skew=0.5),
    "class-groups": ScenarioSchedule("class-groups"),
    "style-groups": ScenarioSchedule("style-groups", "covariate"),
    **{shape: ScenarioSchedule(shape) for shape in LONG_SHAPES},
}
"""Schedules by name."""

_SHORT = tuple(name for name in SCHEDULES if name not in LONG_SHAPES)

ALLOWED: Mapping[str, tuple[str, ...]] = {
    "plant": tuple(SCHEDULES),
    "digits": tuple(SCHEDULES),
    "pronto": _SHORT,
    # A run knows the classes that it recorded, in the conditions that it was recorded in.
    "cranfield": (
        "stationary",
        "stagger",
        "repeat",
        "gradual",
        "recurring",
        "same",
        "class-groups",
    ),
    # Sensors age by themselves; what can be chosen is when each site does.
    "gas": ("stagger", "same", "skew"),
    "cifar10": _SHORT,
    "cifar10-short": _SHORT,
    "cifar10-frozen": _SHORT,
    # Three classes have two derangements, and four events ask for more.
    "busi": tuple(name for name in _SHORT if name != "repeat"),
    **dict.fromkeys(LAYOUTS, _SHORT),
}
"""Schedules that each data set allows."""


@dataclass(frozen=True, slots=True)
class _Request:
    """One scenario with everything that builds it; `folder` is the data set's own."""

    name: str
    schedule: ScenarioSchedule
    seed: int
    folder: Path
    n_images: int
    cache: Path | None


def scenario_names() -> tuple[str, ...]:
    """Return the names that `load_scenario` takes."""
    return tuple(f"{data}/{schedule}" for data, allowed in ALLOWED.items() for schedule in allowed)


def load_scenario(
    name: str,
    seed: int,
    data_dir: Path | None = None,
    *,
    n_images: int | None = None,
    cache_dir: Path | None = None,
) -> Fleet:
    """Build the fleet of a scenario.

    Parameters
    ----------
    name : str
        One of `scenario_names`.
    seed : int, >= 0
        Splits and deals the data, draws the rounds and the initial model.
    data_dir : Path or None
        Folder of the recorded data, one folder a data set: ``pronto``, ``cranfield2015``,
        ``gas_drift``, ``cifar10``, ``busi_224``; those of images as their authors publish them are
        in `clma.simulation.image_folder.LAYOUTS`. `plant` and `digits` need none. Nothing is
        written there.
    n_images : int or None
        Training images of all clients together, for `cifar10`; None: 20,000, and a quarter of that
        for `cifar10-short`.
    cache_dir : Path or None
        Folder that keeps decoded `cifar10` images, and the embeddings of other images, between
        processes; not within `data_dir`.

    Raises
    ------
    InvalidConfigError
        If the data set or the schedule is unknown, the data set does not allow the schedule, a
        number is out of range, or a file is missing or not what it should be.
    MissingExtraError
        If the packages of the encoder of embedded images are not there.
    """
    data, schedule = _parse(name)
    if seed < 0:
        raise InvalidConfigError(f"got seed {seed}, wanted seed >= 0")
    if n_images is not None and data not in _N_IMAGES:
        raise InvalidConfigError(f"scenario {name!r} takes no number of images, cifar10 does")
    folder = Path()
    if data in _FOLDERS:
        if data_dir is None:
            raise InvalidConfigError(
                f"scenario {name!r} replays recorded data, wanted the folder "
                f"that holds {_FOLDERS[data]}/"
            )
        folder = data_dir / _FOLDERS[data]
        if not folder.is_dir():
            raise InvalidConfigError(f"scenario {name!r}: no folder {folder}")
        if cache_dir is not None and cache_dir.resolve().is_relative_to(data_dir.resolve()):
            raise InvalidConfigError(
                f"cache folder {cache_dir} lies within the data {data_dir}, wanted another place"
            )
    n_images = _N_IMAGES.get(data, 0) if n_images is None else n_images
    request = _Request(name, schedule, seed, folder, n_images, cache_dir)
    return _BUILDERS[data](request)


def is_embedded(name: str) -> bool:
    """Return whether a scenario's clients train on embeddings of images, which take a while."""
    return name.partition("/")[0] in _IMAGE_SETS


def recorded_folder(name: str) -> str | None:
    """Return the name of the folder that a scenario's recorded data lie in, None if it has none."""
    return _FOLDERS.get(name.partition("/")[0])


def _parse(name: str) -> tuple[str, ScenarioSchedule]:
    data, _, schedule = name.partition("/")
    if data not in ALLOWED:
        raise InvalidConfigError(
            f"scenario {name!r}: data {data!r} is unknown, wanted one of {', '.join(ALLOWED)}"
        )
    if schedule not in ALLOWED[data]:
        raise InvalidConfigError(
            f"scenario {name!r}: {data} has no schedule {schedule!r}, "
            f"wanted one of {', '.join(ALLOWED[data])}"
        )
    return data, SCHEDULES[schedule]


def _plant(request: _Request) -> Fleet:
    s = request.schedule
    return plant_fleet(s.shape, s.kind, request.seed, name=request.name, skew=s.skew)


def _digits(request: _Request) -> Fleet:
    s = request.schedule
    return digits_fleet(s.shape, s.kind, request.seed, name=request.name, skew=s.skew)


def _pronto(request: _Request) -> Fleet:
    s = request.schedule
    return pronto_fleet(
        request.folder, s.shape, s.kind, request.seed, name=request.name, skew=s.skew
    )


def _cranfield(request: _Request) -> Fleet:
    return cranfield_fleet(request.folder, request.schedule.shape, request.seed, name=request.name)


def _gas(request: _Request) -> Fleet:
    s = request.schedule
    late = s.shape == "stagger"
    return gas_fleet(request.folder, request.seed, half_late=late, name=request.name, skew=s.skew)


def _cifar10(request: _Request) -> Fleet:
    s = request.schedule
    return cifar10_fleet(
        request.folder,
        s.shape,
        s.kind,
        request.seed,
        name=request.name,
        skew=s.skew,
        n_images=request.n_images,
        cache=request.cache,
    )


def _frozen(request: _Request) -> Fleet:
    s = request.schedule
    return frozen_fleet(
        _IMAGE_SETS[request.name.partition("/")[0]](request.folder),
        s.shape,
        s.kind,
        request.seed,
        name=request.name,
        skew=s.skew,
        cache=request.cache,
    )


_FOLDERS = {
    "pronto": "pronto",
    "cranfield": "cranfield2015",
    "gas": "gas_drift",
    "cifar10": "cifar10",
    "cifar10-short": "cifar10",
    "cifar10-frozen": "cifar10",
    "busi": "busi_224",
    **{name: layout.folder for name, layout in LAYOUTS.items()},
}
_IMAGE_SETS: Mapping[str, Callable[[Path], ImageSet]] = {
    "cifar10-frozen": cifar10_images,
    "busi": load_busi,
    **{name: functools.partial(published_images, name) for name in LAYOUTS},
}
_N_IMAGES = {"cifar10": N_IMAGES, "cifar10-short": N_IMAGES // 4}
_BUILDERS: Mapping[str, Callable[[_Request], Fleet]] = {
    "plant": _plant,
    "digits": _digits,
    "pronto": _pronto,
    "cranfield": _cranfield,
    "gas": _gas,
    "cifar10": _cifar10,
    "cifar10-short": _cifar10,
    "cifar10-frozen": _frozen,
    "busi": _frozen,
    **dict.fromkeys(LAYOUTS, _frozen),
}
