"""Learn thresholds from a federation's own nights, and try others on them; nothing is changed.

    python -m flows.calibrate --store federations/demo --federation demo --out calibration

Measured nights are kept in ``DIR/nights``; a calibration that was stopped goes on from there.
"""

from __future__ import annotations

if (
    __name__ == "__main__"
):  # Prefect reads its settings when it is imported: the command goes first.
    from flows._calibrate_command import run_calibrate_command

    run_calibrate_command()

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from prefect import flow

from clma.calibration.calibration import Calibration, learn
from clma.calibration.nights import Night, read_night
from clma.calibration.what_if import decide_again, override_decisions
from clma.ledger.federation import Federation
from clma.ledger.lease import hold_lease
from clma.ledger.store import Store
from flows._calibrate_screen import CalibrateScreen
from flows._commands import noticed_interrupts
from flows._measured_nights import measured_nights
from tasks.calibration_request import CalibrationRequest
from tasks.kept_nights import KeptNights
from tasks.write_calibration import write_calibration

__all__ = ["calibrate"]

OTHER_WAIT_S = 5.0


@flow(name="calibrate")
def calibrate(request: CalibrationRequest, out: str) -> Calibration:
    """Measure the nights that are not kept, judge them, propose settings, decide them again.

    Parameters
    ----------
    request : CalibrationRequest
    out : str
        Folder of results, not within the federation's.

    Raises
    ------
    InvalidConfigError
        If a setting to try is unknown; nothing is read then.
    UnknownFederationError
        If the store does not hold the federation.
    LeaseError
        If another calibration is at work in the same folder.
    """
    federation = Federation.open(request.store, request.federation)
    config = federation.config
    override_decisions(config, request.what_if)
    screen, kept = CalibrateScreen(federation.name), KeptNights(Path(out) / "nights")
    with (
        hold_lease(Store.open(out), "calibrate", wait_s=OTHER_WAIT_S),
        noticed_interrupts() as noticed,
    ):
        nights = _read_nights(federation, request.since, screen.tell)
        read = measured_nights(federation, nights, config, request.horizon, kept, screen, noticed)
        calibration = learn(
            nights,
            read.measured,
            config,
            horizon=request.horizon,
            min_evidence=request.min_evidence,
            unread=read.unread,
            on_progress=screen.tell,
        )
        what_if = request.what_if or calibration.decided_anew
        if what_if and calibration.teaches:
            other = override_decisions(config, what_if)
            again = measured_nights(
                federation, nights, other, request.horizon, kept, screen, noticed
            )
            calibration = dataclasses.replace(
                calibration,
                what_if=what_if,
                again=tuple(
                    decide_again(nights[r], found, other)
                    for r, found in again.measured.items()
                    if nights[r].rows or found.units
                ),
            )
        write_calibration(calibration, request.store, Path(out))
    return calibration


def _read_nights(
    federation: Federation, since: int, tell: Callable[[str], None]
) -> Mapping[int, Night]:
    nights = {}
    for round_num in federation.committed_rounds():
        if round_num >= since:
            tell(f"reading round {round_num}")
            nights[round_num] = read_night(federation, round_num)
    return nights
