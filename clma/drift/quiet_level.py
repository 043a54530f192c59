"""Flag a loss that leaves the band of the last quiet losses.

Our own rule (not from a paper). A plant's loss differs from night to night with what it happened
to do: the same model costs 0.01 on an easy night and 0.8 on a hard one. Compared with the night
before, every hard night after an easy one is a drift; compared with the worst of several quiet
nights, it is what such nights look like. Multiplying the loss by a constant changes no flag.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from clma.drift.detector import DetectorState, DriftReading, check_loss
from clma.errors import InvalidConfigError

__all__ = ["QuietLevelDetector"]

N_QUIET = 5
N_ERRORS = 3
N_CREEP = 3
N_TRUSTED = 3
UNRELIEVED = 0.75
"""Share of the rise that is still there where no model came, or the wrong one; a drift that takes
some nights leaves about half of it."""
LEAST_LEVEL = 0.25
"""Share of the anchor that fewer quiet losses than `N_TRUSTED` are not trusted to lie below."""


@dataclass(frozen=True, slots=True)
class QuietLevelDetector:
    """Flag when the loss exceeds the largest of the last five quiet losses by an allowance.

    Parameters
    ----------
    anchor_fraction : float >= 0
        a, share of the first recorded loss.
    relative_rise : float >= 0
        rho, share of the level.
    z_score : float >= 0
        z, in standard errors of a difference of two mean losses; 0 leaves the term out.
    noise_ceiling : float > 0
        c, share of the first recorded loss: the most that the noise term excuses. Standard errors
        are largest in a drift itself, where some samples are lost and some are not.
    creep : bool
        Also flag when the last three losses are all above the three before them, and their median
        above that one's by twice a and rho: a slow rise that no single step shows, and that the
        level would follow.
    recheck : bool
        Also flag when the round after a flag brought no relief: the model that came for the drift
        left more than three quarters of the rise.

    Raises
    ------
    InvalidConfigError
        If a parameter is out of range, or all allowances are 0.

    Notes
    -----
    The rule is :math:`L_t - B > \\max(a L_1, \\rho B, \\min(z \\sqrt 2 \\max SE, c L_1))` with B
    the largest of the last five quiet losses and the largest standard error over the current and
    the last three quiet rounds; B is at least a quarter of the anchor until three quiet losses are
    known. A flagged loss is not quiet. The round after a flag is only asked
    for relief: its model has not settled, and its loss is the first quiet one of what came. The
    first loss of all is that of an untrained model: it is the anchor, about ln C for cross-entropy
    over C classes, and no level once there is another.

    Give it the loss of the *received* model on fresh data, before training on them: after training,
    the loss has forgotten what it should tell.

    Examples
    --------
    >>> detector, state = QuietLevelDetector(), DetectorState()
    >>> for index, loss in enumerate([2.3, 0.5, 0.4, 0.05, 0.45, 3.0]):
    ...     state, reading = detector.observe(state, loss)
    ...     if reading.drift_detected:
    ...         print("drift at", index)
    drift at 5
    """

    anchor_fraction: float = 0.05
    relative_rise: float = 0.15
    z_score: float = 4.0
    noise_ceiling: float = 0.5
    creep: bool = True
    recheck: bool = True

    def __post_init__(self) -> None:
        for name in ("anchor_fraction", "relative_rise", "z_score", "noise_ceiling"):
            if not getattr(self, name) >= 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}, wanted >= 0")
        if self.anchor_fraction == self.relative_rise == self.z_score * self.noise_ceiling == 0:
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
            number.
        """
        check_loss(loss, standard_error)
        if state.first_loss is None:
            return DetectorState(first_loss=loss), DriftReading(False, loss)
        level = self._level(state)
        threshold = self._allowance(state, level, standard_error)
        if state.flagged_loss is None:
            flagged = loss - level > threshold or (self.creep and self._crept(state, loss))
        else:
            flagged = self.recheck and self._unrelieved(state, loss, standard_error)
            if flagged and state.loss_before_drift is not None:
                level = state.loss_before_drift  # it is still the same drift
        if flagged:
            after = dataclasses.replace(state, flagged_loss=loss, loss_before_drift=level)
        else:
            after = dataclasses.replace(
                state,
                losses=(*state.losses, loss)[-N_QUIET:],
                standard_errors=(*state.standard_errors, standard_error)[-N_ERRORS:],
                flagged_loss=None,
            )
        return after, DriftReading(flagged, loss, level, threshold)

    def is_worse(
        self, state: DetectorState, loss: float, than: float, *, standard_error: float = 0.0
    ) -> bool:
        """Tell whether `loss` exceeds `than` by more than the three allowances."""
        check_loss(loss, standard_error)
        return loss - than > self._allowance(state, than, standard_error)

    def _level(self, state: DetectorState) -> float:
        anchor = state.first_loss or 0.0
        level = max(state.losses, default=anchor)
        return level if len(state.losses) >= N_TRUSTED else max(level, LEAST_LEVEL * anchor)

    def _allowance(self, state: DetectorState, level: float, standard_error: float) -> float:
        anchor = state.first_loss or 0.0
        noise = max((*state.standard_errors, standard_error))
        return max(
            self.anchor_fraction * anchor,
            self.relative_rise * level,
            min(self.z_score * math.sqrt(2) * noise, self.noise_ceiling * anchor),
        )

    def _unrelieved(self, state: DetectorState, loss: float, standard_error: float) -> bool:
        before, flagged = state.loss_before_drift, state.flagged_loss
        if before is None or flagged is None:
            return False
        return self.is_worse(state, loss, before, standard_error=standard_error) and (
            loss - before > UNRELIEVED * (flagged - before)
        )

    def _crept(self, state: DetectorState, loss: float) -> bool:
        recent = (*state.losses, loss)[-2 * N_CREEP :]
        if len(recent) < 2 * N_CREEP:
            return False
        before, now = sorted(recent[:N_CREEP]), sorted(recent[N_CREEP:])
        allowance = max(
            self.anchor_fraction * (state.first_loss or 0.0), self.relative_rise * before[-1]
        )
        middle = N_CREEP // 2
        return now[0] > before[-1] and now[middle] - before[middle] > 2 * allowance
