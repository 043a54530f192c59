"""The client's drift flag: a detector whose memory survives between nights.

Examples
--------
>>> from clma.config import DriftConfig
>>> reporter = DriftReporter(DriftConfig())
>>> reporter.observe([0.5, 0.7, 0.6], round_num=1).drift_detected
False
>>> reporter.observe([5.0, 5.5, 6.0], round_num=2).drift_detected
True
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clma.config import DriftConfig
from clma.drift import Detector, DetectorState, DriftReading, make_detector
from clma.errors import DamagedStoreError, InvalidUpdateError
from clma.ledger.durable_file import replace_files
from clma.ledger.refusals import refusals_named

__all__ = ["DriftReporter"]


class DriftReporter:
    """Turn a night's per-sample losses into the drift flag and the confirm bit.

    Parameters
    ----------
    config : DriftConfig or Detector
        The federation's, which names the detector; or a detector itself.
    path : Path, optional
        File that keeps the detector's memory. Without it the memory lives in this object only.
    memory : str, optional
        What `memory` of an earlier reporter returned, for whoever keeps it elsewhere.

    Raises
    ------
    DamagedStoreError
        If the file is there but cannot be read, or `memory` is none.
    """

    def __init__(
        self, config: DriftConfig | Detector, path: Path | None = None, *, memory: str | None = None
    ) -> None:
        self._detector = make_detector(config) if isinstance(config, DriftConfig) else config
        self._path = path
        self._round_num = 0
        self._before = DetectorState()
        self._after = DetectorState()
        if memory is not None:
            self._load(memory, "memory")
        elif path is not None and path.exists():
            self._load(path.read_bytes(), str(path))

    @property
    def memory(self) -> str:
        """The detector's memory and the newest round, as JSON."""
        return json.dumps(
            {
                "round": self._round_num,
                "before": self._before.to_json(),
                "after": self._after.to_json(),
            }
        )

    @property
    def round_num(self) -> int:
        """The newest round that was looked at; 0 before the first one."""
        return self._round_num

    def observe(
        self, losses: Sequence[float] | NDArray[np.float64], *, round_num: int
    ) -> DriftReading:
        """Look at the losses of this round's fresh samples.

        Observing the same round again, for instance after a crash between training and submitting,
        replaces the first look: the detector does not take the round for two.

        Parameters
        ----------
        losses : array of shape (n_samples,)
            Per-sample losses of the model that the configuration's `loss_point` names.
        round_num : int >= 1

        Raises
        ------
        InvalidUpdateError
            If there is no sample, or a loss is not finite.
        """
        mean, standard_error = _mean_and_error(losses)
        before = self._before if round_num == self._round_num else self._after
        after, reading = self._detector.observe(before, mean, standard_error=standard_error)
        self._round_num, self._before, self._after = round_num, before, after
        if self._path is not None:
            self._save(self._path)
        return reading

    def origin_still_bad(self, losses: Sequence[float] | NDArray[np.float64]) -> bool:
        """Tell whether the model of the cohort that was left is still bad: the confirm bit.

        Asked after `observe` of the same round.

        Parameters
        ----------
        losses : array of shape (n_samples,)
            Per-sample losses of that model on this round's fresh samples, before training.

        Returns
        -------
        bool
            True also when no flag was ever raised: then there is nothing to go home from.
        """
        mean, standard_error = _mean_and_error(losses)
        before_drift = self._before.loss_before_drift
        if before_drift is None:
            return True
        return self._detector.is_worse(
            self._before, mean, before_drift, standard_error=standard_error
        )

    def _load(self, text: str | bytes, place: str) -> None:
        try:
            values = json.loads(text)
            self._round_num = int(values["round"])
            self._before = DetectorState.from_json(values["before"])
            self._after = DetectorState.from_json(values["after"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedStoreError(
                f"{place}: not a detector state ({type(error).__name__}); "
                "delete it to start the detector anew"
            ) from None

    def _save(self, path: Path) -> None:
        data = self.memory.encode()
        with refusals_named("written", path.name, str(path.parent), len(data)):
            replace_files({path: data})


def _mean_and_error(losses: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    values = np.asarray(losses, dtype=np.float64).ravel()
    if values.size == 0:
        raise InvalidUpdateError("no losses, wanted at least one fresh sample")
    return float(values.mean()), float(values.std() / np.sqrt(values.size))
