"""Measure recorded nights one after the other, each as a task, but for those that are kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from clma.calibration.measure import Measured, measured_night, night_units
from clma.calibration.nights import Night
from clma.cohorting.contract import CohortingUnit
from clma.config import FederationConfig
from clma.errors import DamagedStoreError, MissingObjectError
from clma.ledger.federation import Federation
from flows._calibrate_screen import CalibrateScreen
from tasks.kept_nights import KeptNights
from tasks.measure_night import measure_night

__all__ = ["ReadNights", "measured_nights"]


@dataclass(frozen=True, slots=True)
class ReadNights:
    """What was read of the weights, and of which rounds they are not there any more, and why."""

    measured: Mapping[int, Measured]
    unread: Mapping[int, str]


def measured_nights(
    federation: Federation,
    nights: Mapping[int, Night],
    config: FederationConfig,
    horizon: int,
    kept: KeptNights,
    screen: CalibrateScreen,
    noticed: threading.Event,
) -> ReadNights:
    """Measure every night that has anything to compare.

    Raises
    ------
    KeyboardInterrupt
        As soon as an interrupt was noticed.
    """
    units = {r: _units(federation, nights, r, config, horizon) for r in nights}
    wanted = {r: found for r, found in units.items() if found}
    missing = [r for r, found in wanted.items() if kept.load(found, config) is None]
    if missing:
        screen.start(len(nights), len(wanted) - len(missing), len(missing))
    unread: dict[int, str] = {}
    for n_done, round_num in enumerate(missing, start=1):
        try:
            measure_night(round_num, federation, wanted[round_num], config, kept)
        except (DamagedStoreError, MissingObjectError) as error:
            unread[round_num] = " ".join(str(error).split())
        if noticed.is_set():
            raise KeyboardInterrupt
        screen.measured(n_done, len(missing))
    measured = {}
    for round_num, found in wanted.items():
        sums = kept.load(found, config)
        if sums is not None:
            measured[round_num] = measured_night(federation, found, config, sums)
    return ReadNights(measured, unread)


def _units(
    federation: Federation,
    nights: Mapping[int, Night],
    round_num: int,
    config: FederationConfig,
    horizon: int,
) -> tuple[CohortingUnit, ...]:
    before = (nights[r] for r in range(round_num - horizon, round_num) if r in nights)
    watched = frozenset(row.client_id for night in before for row in night.rows)
    return night_units(federation, round_num, config, watched)
