"""What the way home says of drift flags, and of the detector's settings where losses are shared.

A client that was moved tries the model that it left once more. If that is no longer bad, it goes
home, and its flag was a false alarm. Drifts that nobody flagged leave no such trace, so settings
can be found that flag less, never such that flag more.

Examples
--------
>>> nights = {1: Night(1, n_accepted=2), 2: Night(2, n_accepted=2, flagged=frozenset({"a"}))}
>>> nights[3] = Night(3, n_accepted=2, asked=frozenset({"a"}), returned=frozenset({"a"}))
>>> count_flags(nights).false_alarms
Rate(count=1, total=1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clma.calibration.nights import Night
from clma.calibration.rates import Rate, sign_test
from clma.calibration.thresholds import MAX_CHANCE, MIN_EVIDENCE, Errors, Proposal
from clma.config import DriftConfig
from clma.drift import DetectorState, make_detector

__all__ = ["Flag", "FlagCounts", "count_flags", "judged_flags", "propose_detector"]

STEPS = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Tried values, in those in force."""

_SETTINGS: Mapping[str, Sequence[str]] = {
    "anchored": ("relative_rise", "anchor_fraction"),
    "quiet_level": ("relative_rise", "anchor_fraction"),
    "loss_threshold": ("gamma",),
}


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that was followed, and whether the client had drifted: None if it was not asked."""

    round_num: int
    client_id: str
    true: bool | None


@dataclass(frozen=True, slots=True)
class FlagCounts:
    """How often clients flag, and go home.

    Parameters
    ----------
    flags : Rate
        Of client-nights.
    false_alarms : Rate
        Of the flags whose clients were asked afterwards.
    outliers : Rate
        Updates that pointed against their cohort's without a flag, of client-nights: drifts that
        were missed, or faults.
    """

    flags: Rate
    false_alarms: Rate
    outliers: Rate

    @property
    def false_alarm_rate(self) -> float:
        """False alarms per client and night, those that were not asked taken for average."""
        return self.flags.share * self.false_alarms.share


def judged_flags(nights: Mapping[int, Night]) -> tuple[Flag, ...]:
    """Return every flag that was followed, with what the next answer of its client says."""
    return tuple(
        Flag(night.round_num, client_id, _answer(client_id, night.round_num, nights.values()))
        for night in nights.values()
        for client_id in sorted(night.flagged)
    )


def count_flags(nights: Mapping[int, Night]) -> FlagCounts:
    """Count flags, homecomings and outliers over all nights.

    Parameters
    ----------
    nights : mapping of round number to Night
        Committed rounds, rising.
    """
    n_nights = sum(night.n_accepted for night in nights.values())
    flags = judged_flags(nights)
    asked = [flag.true for flag in flags if flag.true is not None]
    return FlagCounts(
        flags=Rate(len(flags), n_nights),
        false_alarms=Rate(asked.count(False), len(asked)),
        outliers=Rate(sum(len(night.outliers) for night in nights.values()), n_nights),
    )


def propose_detector(
    nights: Mapping[int, Night], config: DriftConfig, *, min_evidence: int = MIN_EVIDENCE
) -> tuple[Proposal, ...]:
    """Propose settings of the detector that raise fewer false alarms and lose no true flag.

    Parameters
    ----------
    nights : mapping of round number to Night
        Committed rounds, rising.
    config : DriftConfig
        In force.
    min_evidence : int >= 1
        Fewest true flags, and fewest false alarms.

    Returns
    -------
    tuple of Proposal
        One after the other, each with those before it applied; empty where no losses are shared.

    Notes
    -----
    Only the mean losses are shared, not their standard errors: `z_score` cannot be replayed, and
    what is counted are recorded flags that other settings would not have raised.
    """
    series = _series(nights)
    if not series:
        return ()
    flags = [flag for flag in judged_flags(nights) if flag.true is not None]
    proposals = []
    for key in _SETTINGS.get(config.detector, ()):
        proposals.append(_propose(key, config, series, flags, min_evidence))
        config = config.model_copy(update={key: proposals[-1].value})
    return tuple(proposals)


def _propose(
    key: str,
    config: DriftConfig,
    series: Mapping[str, Mapping[int, float]],
    flags: Sequence[Flag],
    min_evidence: int,
) -> Proposal:
    in_force: float = getattr(config, key)

    def kept(value: float) -> list[bool]:
        raised = _raised(config.model_copy(update={key: value}), series)
        return [(flag.client_id, flag.round_num) in raised for flag in flags]

    def errors(value: float) -> Errors:
        both = list(zip(kept(value), (flag.true for flag in flags), strict=True))
        n_true = sum(t is True for _, t in both)
        return Errors(
            Rate(both.count((True, False)), len(both) - n_true),
            Rate(both.count((False, True)), n_true),
        )

    before = errors(in_force)
    n_true, n_false = before.misses.total, before.false_alarms.total
    value, best = in_force, before
    if min(n_true, n_false) < min_evidence:
        reason = f"too few: {n_true} true flags, {n_false} false alarms, "
        reason += f"wanted {min_evidence} of each"
    else:
        for tried in (round(in_force * step, 4) for step in STEPS[1:]):
            found = errors(tried)
            fewer = found.false_alarms.count < best.false_alarms.count
            if fewer and found.misses.count <= before.misses.count:
                value, best = tried, found
        if sign_test(before.false_alarms.count - best.false_alarms.count, 0) > MAX_CHANCE:
            value, best = in_force, before
            reason = "no larger value saves more false alarms than chance would and keeps all flags"
        else:
            reason = "the smallest value that saves as many false alarms and loses no true flag"
    return Proposal(f"drift.{key}", in_force, value, reason, before, best)


def _answer(client_id: str, round_num: int, nights: Iterable[Night]) -> bool | None:
    for night in nights:
        if night.round_num > round_num:
            if client_id in night.asked:
                return client_id not in night.returned
            if client_id in night.flagged:
                return None
    return None


def _series(nights: Mapping[int, Night]) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    for night in nights.values():
        for client_id, loss in sorted(night.losses.items()):
            series.setdefault(client_id, {})[night.round_num] = loss
    return series


def _raised(
    config: DriftConfig, series: Mapping[str, Mapping[int, float]]
) -> frozenset[tuple[str, int]]:
    """Return the client-nights in which the detector flags the shared losses."""
    detector, found = make_detector(config), set()
    for client_id, losses in series.items():
        state = DetectorState()
        for round_num, loss in losses.items():
            state, reading = detector.observe(state, loss)
            if reading.drift_detected:
                found.add((client_id, round_num))
    return frozenset(found)
