"""Everything that a federation's history teaches, in one record.

Examples
--------
>>> from clma.config import preset_config
>>> learn({}, {}, preset_config("north")).proposed
()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clma.calibration.flags import FlagCounts, count_flags, propose_detector
from clma.calibration.hindsight import HORIZON, Hindsight, look_back
from clma.calibration.measure import Measured
from clma.calibration.nights import Night
from clma.calibration.thresholds import MIN_EVIDENCE, Proposal, propose_thresholds
from clma.calibration.what_if import NightAgain
from clma.config import FederationConfig

__all__ = ["Calibration", "learn"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was learned.

    Parameters
    ----------
    federation : str
    first_round, last_round : int
        Of the rounds that were looked at; 0 for none.
    n_rounds : int
    hindsight : Hindsight
    flags : FlagCounts
    losses_shared : bool
    thresholds, detector : tuple of Proposal
    unread : mapping of round number to str
        Rounds whose weights are no longer there, and why.
    what_if : tuple of str
        Settings under which the nights were decided again.
    again : tuple of NightAgain
    """

    federation: str
    first_round: int
    last_round: int
    n_rounds: int
    hindsight: Hindsight
    flags: FlagCounts
    losses_shared: bool
    thresholds: tuple[Proposal, ...]
    detector: tuple[Proposal, ...]
    unread: Mapping[int, str] = field(default_factory=dict)
    what_if: tuple[str, ...] = ()
    again: tuple[NightAgain, ...] = ()

    @property
    def teaches(self) -> bool:
        """Somebody was set apart at least once."""
        return self.flags.flags.count > 0 or bool(self.hindsight.pairs or self.hindsight.recalls)

    @property
    def decided_anew(self) -> tuple[str, ...]:
        """Those of the changes that decide a recorded night otherwise."""
        return tuple(f"{p.setting}={p.value:g}" for p in self.thresholds if p.changes)

    @property
    def proposed(self) -> tuple[str, ...]:
        """The changes as ``section.key=value``, as ``clma configure --set`` takes them."""
        both = (*self.thresholds, *self.detector)
        return tuple(f"{p.setting}={p.value:g}" for p in both if p.changes)


def learn(
    nights: Mapping[int, Night],
    measured: Mapping[int, Measured],
    config: FederationConfig,
    *,
    horizon: int = HORIZON,
    min_evidence: int = MIN_EVIDENCE,
    unread: Mapping[int, str] | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Judge all nights and propose settings.

    Parameters
    ----------
    nights : mapping of round number to Night
        Committed rounds, rising.
    measured : mapping of round number to Measured
        Those of them whose weights could be read, under `config`.
    config : FederationConfig
        In force.
    horizon : int >= 1
        Nights after a decision that judge it.
    min_evidence : int >= 1
        Fewest cases of each kind behind a proposal.
    unread : mapping of round number to str, optional
        The other rounds, and why.
    on_progress : callable
        Told what is done next.
    """
    hindsight = look_back(
        nights, {r: found.likeness for r, found in measured.items()}, horizon=horizon
    )
    thresholds = propose_thresholds(
        measured, hindsight, config.cohorting, min_evidence=min_evidence, on_progress=on_progress
    )
    return Calibration(
        federation=config.federation,
        first_round=min(nights, default=0),
        last_round=max(nights, default=0),
        n_rounds=len(nights),
        hindsight=hindsight,
        flags=count_flags(nights),
        losses_shared=any(night.losses for night in nights.values()),
        thresholds=thresholds,
        detector=propose_detector(nights, config.drift, min_evidence=min_evidence),
        unread=unread or {},
    )
