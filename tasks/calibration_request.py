"""What is asked of a calibration, as a flow's parameter."""

from __future__ import annotations

from dataclasses import dataclass

from clma.calibration.hindsight import HORIZON
from clma.calibration.thresholds import MIN_EVIDENCE

__all__ = ["CalibrationRequest"]


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """A federation's past, and how it is looked at.

    Parameters
    ----------
    store, federation : str
    since : int >= 1
        First round that is looked at.
    horizon : int >= 1
        Nights after a decision that judge it.
    min_evidence : int >= 1
        Fewest cases of each kind behind a proposal.
    what_if : tuple of str
        ``section.key=value`` under which the nights are decided again; empty: what is proposed.
    """

    store: str
    federation: str
    since: int = 1
    horizon: int = HORIZON
    min_evidence: int = MIN_EVIDENCE
    what_if: tuple[str, ...] = ()
