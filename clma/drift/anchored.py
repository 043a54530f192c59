"""Flag a rise of the loss that is large against three scales the client knows itself.

Our own rule (not from a paper): the first recorded loss anchors the unit, the previous loss the
proportion, and the standard error of the mean loss the noise. Multiplying the loss by a constant
changes no flag.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from clma.drift.detector import DetectorState, DriftReading, check_loss
from clma.errors import InvalidConfigError

__all__ = ["AnchoredDetector"]


@dataclass(frozen=True, slots=True)
class AnchoredDetector:
    """Flag when the loss rose by more than every one of three allowances.

    Parameters
    ----------
    anchor_fraction : float >= 0
        a, share of the first recorded loss.
    relative_rise : float >= 0
        rho, share of the previous loss.
    z_score : float >= 0
        z, in standard errors of a difference of two mean losses; 0 leaves the term out.
    creep : bool
        Also flag when the loss exceeds the lowest of the last five by twice the allowance without
        the noise term: a slow rise that no single step shows.

    Raises
    ------
    InvalidConfigError
        If a parameter is negative, or all allowances are 0.

    Notes
    -----
    The rule is :math:`L_t - L_{t-1} > \\max(a L_1, \\rho L_{t-1}, z \\sqrt 2 \\max SE)`, the
    largest standard error over the current and up to three earlier rounds since the last flag. For
    cross-entropy over C classes the first loss is about ln C, so a = 0.05 is close to the absolute
    0.1 of `LossThresholdDetector`. Give it the loss of the *received* model on fresh data, before
    training on them: after training, the loss has forgotten what it should tell.

    Examples
    --------
    >>> detector, state = AnchoredDetector(), DetectorState()
    >>> for index, loss in enumerate([5.0, 4.0, 3.0, 3.5, 9.0]):
    ...     state, reading = detector.observe(state, loss)
    ...     if reading.drift_detected:
    ...         print("drift at", index)
    drift at 4
    """

    anchor_fraction: float = 0.05
    relative_rise: float = 0.25
    z_score: float = 3.0
    creep: bool = False

    def __post_init__(self) -> None:
        for name in ("anchor_fraction", "relative_rise", "z_score"):
            if not getattr(self, name) >= 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}, wanted >= 0")
        if self.anchor_fraction == self.relative_rise == self.z_score == 0:
            raise InvalidConfigError("all three allowances are 0, every rise would be a drift")

    def observe(
        self, state: DetectorState, loss: float, *, standard_error: float = 0.0
    ) -> tuple[DetectorState, DriftReading]:
        """Take the next loss (see `Detector.observe`).

        Parameters
        ----------
        state : DetectorState
        loss : float
            Mean loss on the round's fresh samples.
        standard_error : float >= 0
            Of that mean: standard deviation of the per-sample losses over the square root of their
            number (of independent blocks, where samples are autocorrelated).
        """
        check_loss(loss, standard_error)
        if state.first_loss is None or not state.losses:
            after = DetectorState(
                first_loss=loss if state.first_loss is None else state.first_loss,
                losses=(loss,),
                standard_errors=(standard_error,),
            )
            return after, DriftReading(False, loss)
        previous = state.losses[-1]
        threshold = self._allowance(state, previous, standard_error)
        flagged = loss - previous > threshold or (self.creep and self._crept(state, loss))
        after = dataclasses.replace(
            state,
            # A new concept starts a new history: its level and its noise are its own.
            losses=(loss,) if flagged else (*state.losses, loss)[-5:],
            standard_errors=() if flagged else (*state.standard_errors, standard_error)[-3:],
            loss_before_drift=previous if flagged else state.loss_before_drift,
        )
        return after, DriftReading(flagged, loss, previous, threshold)

    def is_worse(
        self, state: DetectorState, loss: float, than: float, *, standard_error: float = 0.0
    ) -> bool:
        """Tell whether `loss` exceeds `than` by more than the three allowances."""
        check_loss(loss, standard_error)
        return loss - than > self._allowance(state, than, standard_error)

    def _allowance(self, state: DetectorState, previous: float, standard_error: float) -> float:
        noise = max((*state.standard_errors, standard_error))
        return max(
            self.anchor_fraction * (state.first_loss or 0.0),
            self.relative_rise * previous,
            self.z_score * math.sqrt(2) * noise,
        )

    def _crept(self, state: DetectorState, loss: float) -> bool:
        lowest = min(state.losses)
        allowance = max(
            self.anchor_fraction * (state.first_loss or 0.0), self.relative_rise * lowest
        )
        return loss - lowest > 2 * allowance
