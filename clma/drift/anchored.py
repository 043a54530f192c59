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

N_LOSSES = 5
"""Newest losses that are remembered."""


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
    baseline_rounds : int in [1, 4]
        How many of the newest losses make the level that a loss is compared with: the largest of
        them. With 1 it is the previous loss, and a night that was easy by chance makes the next
        one look like a drift.
    recheck : bool
        Also flag when the round after a flag brought no relief: the model that came for the drift
        left more than half of the rise.

    Raises
    ------
    InvalidConfigError
        If a parameter is negative, or all allowances are 0.

    Notes
    -----
    The rule is :math:`L_t - B > \\max(a L_1, \\rho B, z \\sqrt 2 \\max SE)`, with B the largest of
    the last `baseline_rounds` losses and the largest standard error over the current and up to
    three earlier rounds, both since the last flag. The first loss of all and the loss that was
    flagged are of a model that did not know the data, so neither is part of B once there is
    another. For
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
    baseline_rounds: int = 1
    recheck: bool = False

    def __post_init__(self) -> None:
        for name in ("anchor_fraction", "relative_rise", "z_score"):
            if not getattr(self, name) >= 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}, wanted >= 0")
        if self.anchor_fraction == self.relative_rise == self.z_score == 0:
            raise InvalidConfigError("all three allowances are 0, every rise would be a drift")
        if not 1 <= self.baseline_rounds < N_LOSSES:
            raise InvalidConfigError(
                f"baseline_rounds is {self.baseline_rounds}, wanted 1 to {N_LOSSES - 1}"
            )

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
        level = self._level(state)
        threshold = self._allowance(state, level, standard_error)
        unrelieved = self.recheck and self._unrelieved(state, loss, standard_error)
        flagged = (
            unrelieved or loss - level > threshold or (self.creep and self._crept(state, loss))
        )
        after = dataclasses.replace(
            state,
            # A new concept starts a new history: its level and its noise are its own.
            losses=(loss,) if flagged else (*state.losses, loss)[-N_LOSSES:],
            standard_errors=() if flagged else (*state.standard_errors, standard_error)[-3:],
            # Without relief the drift is still the one before: its level stays what is compared.
            loss_before_drift=level if flagged and not unrelieved else state.loss_before_drift,
        )
        return after, DriftReading(flagged, loss, level, threshold)

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

    def _level(self, state: DetectorState) -> float:
        return max((state.losses[1:] or state.losses)[-self.baseline_rounds :])

    def _unrelieved(self, state: DetectorState, loss: float, standard_error: float) -> bool:
        before = state.loss_before_drift
        # Only in the round after a flag does the memory hold a single loss and one before it.
        if before is None or len(state.losses) != 1:
            return False
        remains = loss - before
        return remains > self._allowance(state, before, standard_error) and (
            remains > 0.5 * (state.losses[0] - before)
        )

    def _crept(self, state: DetectorState, loss: float) -> bool:
        lowest = min(state.losses)
        allowance = max(
            self.anchor_fraction * (state.first_loss or 0.0), self.relative_rise * lowest
        )
        return loss - lowest > 2 * allowance
