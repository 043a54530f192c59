"""Propose thresholds of cohorting: those under which the recorded nights make the fewest errors.

Every value is tried by deciding all nights again from what was measured in them, and held against
what later nights say (`clma.calibration.hindsight`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from clma.calibration.decisions import apart, destinations, recalled
from clma.calibration.hindsight import Hindsight
from clma.calibration.measure import Measured
from clma.calibration.rates import Rate, sign_test
from clma.config import CohortingConfig

__all__ = ["MIN_EVIDENCE", "Errors", "Proposal", "propose_thresholds"]

MIN_EVIDENCE = 8
"""Cases of each kind: with fewer, even a rate of 0 may be a third in truth."""

MAX_CHANCE = 0.05
"""A change that chance makes as good as this often is not proposed."""


@dataclass(frozen=True, slots=True)
class Errors:
    """What a value gets wrong.

    Parameters
    ----------
    false_alarms : Rate
        Pairs that belong together and are split; clients that are recalled to a wrong cohort.
    misses : Rate
        Pairs that do not belong together and are not split; clients that are not recalled to the
        cohort that they belong to.
    """

    false_alarms: Rate
    misses: Rate

    @property
    def balanced(self) -> float:
        """Mean of both rates: how many there are of each kind is the history's, not the rule's."""
        return (self.false_alarms.share + self.misses.share) / 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """A value for one setting, and why.

    Parameters
    ----------
    setting : str
        ``section.key``.
    in_force, value : float
        Equal where nothing is proposed.
    errors_in_force, errors : Errors or None
        None where nothing was counted.
    reason : str
        One sentence.
    n_unseen : int
        Cases that nothing but the decision itself speaks for.
    """

    setting: str
    in_force: float
    value: float
    reason: str
    errors_in_force: Errors | None = None
    errors: Errors | None = None
    n_unseen: int = 0

    @property
    def changes(self) -> bool:
        """Another value than the one in force is proposed."""
        return self.value != self.in_force


@dataclass(frozen=True, slots=True)
class _Threshold:
    key: str
    grid: tuple[float, ...]
    is_used: Callable[[CohortingConfig], bool]
    of_recall: bool = False


def _grid(low: float, high: float) -> tuple[float, ...]:
    n = round((high - low) / 0.05)
    return tuple(round(low + 0.05 * step, 2) for step in range(n + 1))


_SPLITS = _grid(0.05, 0.60)
_THRESHOLDS = (
    _Threshold("pair_threshold", _grid(-0.20, 0.95), lambda c: c.method == "cosine"),
    _Threshold("silhouette_floor", _SPLITS, lambda c: c.method in {"cosine", "signed_ks"}),
    _Threshold("silhouette_floor_three", _SPLITS, lambda c: c.method == "cosine"),
    _Threshold("split_ceiling", _grid(0.20, 1.00), lambda c: c.metric == c.method == "cosine"),
    _Threshold("recall_threshold", _grid(0.05, 0.95), lambda c: c.recall, of_recall=True),
)

Progress = Callable[[str], None]


def propose_thresholds(
    measured: Mapping[int, Measured],
    hindsight: Hindsight,
    config: CohortingConfig,
    *,
    min_evidence: int = MIN_EVIDENCE,
    on_progress: Progress = lambda _: None,
) -> tuple[Proposal, ...]:
    """Propose a value for every threshold that the configured method uses.

    Parameters
    ----------
    measured : mapping of round number to Measured
    hindsight : Hindsight
    config : CohortingConfig
        In force.
    min_evidence : int >= 1
        Fewest cases of each kind.
    on_progress : callable
        Told what is tried.

    Returns
    -------
    tuple of Proposal
        One after the other, each with those before it applied.
    """
    proposals = []
    for threshold in _THRESHOLDS:
        if threshold.is_used(config):
            on_progress(f"trying {len(threshold.grid)} values of {threshold.key}")
            trial = _Trial(measured, hindsight, config, threshold)
            proposals.append(_propose(trial, min_evidence))
            config = config.model_copy(update={threshold.key: proposals[-1].value})
    return tuple(proposals)


class _Trial:
    """The cases that judge one threshold, decided anew for every value of it."""

    def __init__(
        self,
        measured: Mapping[int, Measured],
        hindsight: Hindsight,
        config: CohortingConfig,
        threshold: _Threshold,
    ) -> None:
        self.threshold = threshold
        self.in_force: float = getattr(config, threshold.key)
        self.default: float = CohortingConfig.model_fields[threshold.key].default
        known = {r: frozenset(_clients(m)) for r, m in measured.items()}
        self._pairs = [
            p for p in hindsight.pairs if {p.first, p.second} <= known.get(p.round_num, frozenset())
        ]
        self._recalls = [
            r for r in hindsight.recalls if r.client_id in known.get(r.round_num, frozenset())
        ]
        judged = {p.round_num for p in self._pairs} | {r.round_num for r in self._recalls}
        self._measured = {r: m for r, m in measured.items() if r in judged}
        self._config = config
        self._tried: dict[float, list[bool]] = {}
        if threshold.of_recall:
            self.truth = [r.right and r.cohort_id is not None for r in self._recalls]
            self.n_unseen = sum(not r.seen for r in self._recalls)
        else:
            self.truth = [not p.alike for p in self._pairs]
            self.n_unseen = sum(not p.seen for p in self._pairs)

    def right(self, value: float) -> list[bool]:
        """Tell of each case whether a value decides it as later nights say."""
        if value not in self._tried:
            config = self._config.model_copy(update={self.threshold.key: value})
            went = {r: destinations(m, config) for r, m in self._measured.items()}
            of_recall = self.threshold.of_recall
            said = recalled(self._recalls, went) if of_recall else apart(self._pairs, went)
            self._tried[value] = [s == t for s, t in zip(said, self.truth, strict=True)]
        return self._tried[value]

    def errors(self, value: float) -> Errors:
        """Count what a value gets wrong."""
        right = self.right(value)
        return Errors(*(_wrong(right, self.truth, kind) for kind in (False, True)))

    def chance(self, value: float) -> float:
        """Return how likely chance makes a value so much better than the one in force."""
        both = list(zip(self.right(value), self.right(self.in_force), strict=True))
        return sign_test(both.count((True, False)), both.count((False, True)))


def _propose(trial: _Trial, min_evidence: int) -> Proposal:
    n_yes = sum(trial.truth)
    n_no = len(trial.truth) - n_yes
    value = trial.in_force
    if min(n_yes, n_no) < min_evidence:
        kinds = (
            ("recalls that were right", "that were or would have been wrong")
            if trial.threshold.of_recall
            else ("pairs that do not belong together", "that do")
        )
        reason = f"too few: {n_yes} {kinds[0]}, {n_no} {kinds[1]}, wanted {min_evidence} of each"
        if trial.default != value and trial.chance(trial.default) <= MAX_CHANCE:
            value = trial.default
            reason += "; back to the default, which gets more of them right"
    else:
        best = _best(trial)
        if trial.errors(best).balanced >= trial.errors(value).balanced:
            reason = "no other value makes fewer errors"
        elif trial.chance(best) > MAX_CHANCE:
            reason = f"{best:g} makes fewer errors, by no more than chance would"
        else:
            value, reason = best, "fewest errors, in the middle of the values that make as few"
    return Proposal(
        f"cohorting.{trial.threshold.key}",
        trial.in_force,
        value,
        reason,
        trial.errors(trial.in_force),
        trial.errors(value),
        trial.n_unseen,
    )


def _best(trial: _Trial) -> float:
    """Return the middle of the longest run of values with the fewest errors."""
    values = trial.threshold.grid
    least = min(trial.errors(v).balanced for v in values)
    runs = [
        list(run)
        for is_best, run in groupby(values, key=lambda v: trial.errors(v).balanced == least)
        if is_best
    ]
    longest = max(runs, key=lambda run: (len(run), -abs(run[len(run) // 2] - trial.in_force)))
    return longest[len(longest) // 2]


def _wrong(right: Sequence[bool], truth: Sequence[bool], kind: bool) -> Rate:
    of_kind = [r for r, t in zip(right, truth, strict=True) if t is kind]
    return Rate(of_kind.count(False), len(of_kind))


def _clients(measured: Measured) -> list[str]:
    return [m.client_id for unit in measured.units for m in unit.members]
