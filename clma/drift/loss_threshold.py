"""Flag a loss that rose by more than a fixed amount (CLMA, Algorithm 2).

After the public description of CLMA (doi 10.1145/3703323.3703341): the client compares its loss
with the one of the round before and raises its flag when the difference exceeds gamma.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from clma.drift.detector import DetectorState, DriftReading, check_loss
from clma.errors import InvalidConfigError

__all__ = ["LossThresholdDetector"]


@dataclass(frozen=True, slots=True)
class LossThresholdDetector:
    """Flag when the loss exceeds the previous one by more than `gamma`.

    Parameters
    ----------
    gamma : float > 0
        In the units of the loss: not free of scale.
    patience : int >= 1
        Rounds in a row that must exceed the last quiet loss.

    Raises
    ------
    InvalidConfigError
        If a parameter is out of range.

    Notes
    -----
    With `patience` of 2 or more the loss compared with stays the last quiet one while a streak
    runs; if it advanced every round, a step that stays would never be found.

    Examples
    --------
    >>> detector, state = LossThresholdDetector(gamma=0.1), DetectorState()
    >>> for index, loss in enumerate([0.5, 0.4, 0.3, 0.35, 0.9]):
    ...     state, reading = detector.observe(state, loss)
    ...     if reading.drift_detected:
    ...         print("drift at", index)
    drift at 4
    """

    gamma: float = 0.1
    patience: int = 1

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise InvalidConfigError(f"gamma is {self.gamma}, wanted > 0")
        if self.patience < 1:
            raise InvalidConfigError(f"patience is {self.patience}, wanted >= 1")

    def observe(
        self, state: DetectorState, loss: float, *, standard_error: float = 0.0
    ) -> tuple[DetectorState, DriftReading]:
        """Take the next loss (see `Detector.observe`); `standard_error` is not used."""
        check_loss(loss, standard_error)
        if not state.losses:
            return DetectorState(first_loss=loss, losses=(loss,)), DriftReading(False, loss)
        previous = state.losses[-1]
        streak = state.streak + 1 if self.is_worse(state, loss, previous) else 0
        flagged = streak >= self.patience
        waiting = streak > 0 and not flagged
        after = dataclasses.replace(
            state,
            losses=state.losses if waiting else (*state.losses, loss)[-5:],
            streak=streak if waiting else 0,
            loss_before_drift=previous if flagged else state.loss_before_drift,
        )
        return after, DriftReading(flagged, loss, previous, self.gamma)

    def is_worse(
        self,
        state: DetectorState,  # noqa: ARG002
        loss: float,
        than: float,
        *,
        standard_error: float = 0.0,
    ) -> bool:
        """Tell whether the rise exceeds gamma."""
        check_loss(loss, standard_error)
        return loss - than > self.gamma
