"""Watch a deployed model between rounds (CLMA, Algorithm 4).

After the public description of CLMA (doi 10.1145/3703323.3703341): the test of Algorithm 2 on the
inference stream; a flag asks for a round.
"""

from __future__ import annotations

from dataclasses import dataclass

from clma.drift.detector import Detector, DetectorState, DriftReading
from clma.errors import InvalidConfigError

__all__ = ["InferenceDriftMonitor", "MonitorReading"]


@dataclass(frozen=True, slots=True)
class MonitorReading:
    """One batch of the stream.

    Parameters
    ----------
    round_requested : bool
        The client should ask for a round now.
    reading : DriftReading
        What the detector saw.
    measure : str
        What the number was: ``loss`` or the name of a label-free surrogate.
    """

    round_requested: bool
    reading: DriftReading
    measure: str


class InferenceDriftMonitor:
    """Ask for a round when the stream's loss, or a surrogate of it, drifts.

    Parameters
    ----------
    detector : Detector
    patience : int >= 1
        Batches in a row that must be worse than the last quiet one.
    cooldown : int >= 0
        Batches after a request in which none is made.
    measure : str
        What is fed: ``loss``, or a surrogate that needs no labels (``mean_entropy``,
        ``reconstruction_error``), since labels come late in a plant. Named in every reading.

    Raises
    ------
    InvalidConfigError
        If a number is out of range.

    Notes
    -----
    Departure from Algorithm 4: a request is debounced by `patience` and `cooldown`, for a batch is
    smaller and noisier than a round. While a streak runs, the loss compared with stays the last
    quiet one.

    Examples
    --------
    >>> from clma.drift import LossThresholdDetector
    >>> monitor = InferenceDriftMonitor(LossThresholdDetector(gamma=0.2), patience=2)
    >>> [monitor.observe(x).round_requested for x in (0.3, 0.3, 0.9, 0.3, 0.9, 0.9)]
    [False, False, False, False, False, True]
    """

    def __init__(
        self,
        detector: Detector,
        *,
        patience: int = 1,
        cooldown: int = 0,
        measure: str = "loss",
    ) -> None:
        if patience < 1 or cooldown < 0:
            raise InvalidConfigError(
                f"patience is {patience} and cooldown {cooldown}, wanted >= 1 and >= 0"
            )
        self._detector = detector
        self._patience = patience
        self._cooldown = cooldown
        self._measure = measure
        self.reset()

    def reset(self) -> None:
        """Forget the stream: a new model was deployed, its losses are no sequel to the old ones."""
        self._state = DetectorState()
        self._streak = 0
        self._quiet_until = 0
        self._n_batches = 0

    def observe(self, value: float, *, standard_error: float = 0.0) -> MonitorReading:
        """Take the next batch's mean loss or surrogate.

        Raises
        ------
        InvalidUpdateError
            If the value is not finite.
        """
        self._n_batches += 1
        after, reading = self._detector.observe(self._state, value, standard_error=standard_error)
        self._streak = self._streak + 1 if reading.drift_detected else 0
        due = self._streak >= self._patience
        requested = due and self._n_batches > self._quiet_until
        if self._streak == 0 or due:
            self._state = after
            self._streak = 0
        if requested:
            self._quiet_until = self._n_batches + self._cooldown
        return MonitorReading(requested, reading, self._measure)
