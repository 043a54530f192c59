"""What every detector is: a rule over a client's losses, with its memory held as data.

A detector is a frozen set of thresholds. Its memory is a `DetectorState` that goes in and comes
out, so a plant can keep it in a small JSON file between nights and a test can replay it.

To add one: a file in this folder with a frozen dataclass that has `observe` and `is_worse`, a name
in `DriftConfig.detector`, a line in `make_detector`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from clma.errors import InvalidUpdateError

__all__ = ["Detector", "DetectorState", "DriftReading", "check_loss"]


@dataclass(frozen=True, slots=True)
class DetectorState:
    """A detector's memory: a few floats.

    Parameters
    ----------
    first_loss : float or None
        The first recorded loss, the scale of `AnchoredDetector`; None before it.
    losses : tuple of float
        Newest losses, oldest first, at most five.
    standard_errors : tuple of float
        Of the same rounds, since the last flag, at most three.
    streak : int
        Rounds in a row above the threshold that have not yet led to a flag.
    loss_before_drift : float or None
        The last loss before the newest flag: what a model has to be compared with to tell whether
        it is still bad.
    flagged_loss : float or None
        The loss of the last round, if it was flagged (`QuietLevelDetector`).
    """

    first_loss: float | None = None
    losses: tuple[float, ...] = ()
    standard_errors: tuple[float, ...] = ()
    streak: int = 0
    loss_before_drift: float | None = None
    flagged_loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "first_loss": self.first_loss,
            "losses": list(self.losses),
            "standard_errors": list(self.standard_errors),
            "streak": self.streak,
            "loss_before_drift": self.loss_before_drift,
            "flagged_loss": self.flagged_loss,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DetectorState:
        """Read what `to_json` wrote."""
        return cls(
            first_loss=values["first_loss"],
            losses=tuple(values["losses"]),
            standard_errors=tuple(values["standard_errors"]),
            streak=values["streak"],
            loss_before_drift=values["loss_before_drift"],
            flagged_loss=values.get("flagged_loss"),  # not in files of before 2026-12
        )


@dataclass(frozen=True, slots=True)
class DriftReading:
    """One look at one loss.

    Parameters
    ----------
    drift_detected : bool
    loss : float
    loss_previous : float or None
        What it was compared with; None at the first look.
    threshold : float or None
        Largest rise that is still no drift, in the loss's units.
    """

    drift_detected: bool
    loss: float
    loss_previous: float | None = None
    threshold: float | None = None


class Detector(Protocol):
    """A rule that turns a series of losses into drift flags."""

    def observe(
        self, state: DetectorState, loss: float, *, standard_error: float = 0.0
    ) -> tuple[DetectorState, DriftReading]:
        """Take the next loss; return the new memory and the reading. The first loss never flags."""
        ...

    def is_worse(
        self, state: DetectorState, loss: float, than: float, *, standard_error: float = 0.0
    ) -> bool:
        """Tell whether `loss` exceeds `than` by more than this rule lets pass."""
        ...


def check_loss(loss: float, standard_error: float) -> None:
    """Refuse what is no loss: a non-finite number is an error event, never a flag.

    Raises
    ------
    InvalidUpdateError
        If the loss or its standard error is not finite, or the latter is negative.
    """
    if not math.isfinite(loss):
        raise InvalidUpdateError(f"loss is {loss}, wanted a finite number")
    if not math.isfinite(standard_error) or standard_error < 0:
        raise InvalidUpdateError(
            f"standard error of the loss is {standard_error}, wanted a finite number >= 0"
        )
