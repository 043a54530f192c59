"""Choose the model to train by the losses on this round's fresh data, before training.

Examples
--------
>>> best_model([0.95, 0.85, 0.85])
1
>>> rule = ChoiceRule(ratio=0.5, z_score=2.0)
>>> best_model([[1.0, 1.2, 0.9], [0.4, 0.5, 0.3], [0.8, 0.9, 0.7]], rule=rule)
1
>>> best_model([[1.0, 1.2, 0.9], [0.8, 0.9, 0.7]], rule=rule)
0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clma.client.pull import ModelOfChoice, PulledModel
from clma.client.reporter import DriftReporter
from clma.config import ChoiceRule
from clma.errors import InvalidUpdateError

__all__ = ["Choice", "best_model", "choose"]

LossFunction = Callable[[Path], NDArray[np.float64]]
"""Per-sample losses of the model in a file on this round's fresh data."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a client trains, and what it says of the cohort it was asked about.

    Parameters
    ----------
    cohort_id : str
        Whose model is trained.
    path : Path
        That model.
    digest : str
        Its SHA-256, for `submit` as `base_digest`.
    confirm : bool or None
        For `submit`; None where nothing was asked.
    losses : tuple of (digest, float)
        Mean loss of every model of choice.
    """

    cohort_id: str
    path: Path
    digest: str
    confirm: bool | None = None
    losses: tuple[tuple[str, float], ...] = ()


def choose(pulled: PulledModel, losses_of: LossFunction, reporter: DriftReporter) -> Choice:
    """Choose the model to train and answer what the federation asks, before training.

    Parameters
    ----------
    pulled : PulledModel
    losses_of : callable
        Per-sample losses of the model in a file on this round's fresh data, shape (n_samples,).
        Called with the files that `pulled` names, with one of them perhaps twice.
    reporter : DriftReporter
        After `DriftReporter.observe` of this round.

    Returns
    -------
    Choice
        The pulled model itself where there is no other.
    """
    asked = None
    if pulled.confirm_path is not None:
        asked = np.asarray(losses_of(pulled.confirm_path), np.float64)
    if not pulled.choice:
        confirm = None if asked is None else _is_bad(asked, reporter)
        return Choice(pulled.cohort_id, pulled.path, pulled.base_digest, confirm)
    rule = pulled.choice_rule
    losses = [np.asarray(losses_of(model.path), np.float64) for model in pulled.choice]
    best = best_model(losses, [model.trainable for model in pulled.choice], rule=rule)
    confirm = None
    if asked is not None and rule is not None:
        # A small cohort's model knows its few members' data by heart: that a larger one's does no
        # worse than before the drift counts too.
        surpassed = best_model([asked, losses[0]], rule=rule) > 0
        worse = not asked.mean() <= losses[0].mean()
        confirm = surpassed or (worse and _is_bad(asked, reporter))
        takes = pulled.confirm_takes and not confirm
        if takes and best_model([asked, losses[best]], rule=rule) == 0:
            best = _index_of(pulled.confirm_cohort, pulled.choice, best)
    model = pulled.choice[best]
    means = tuple(
        (m.digest, float(values.mean())) for m, values in zip(pulled.choice, losses, strict=True)
    )
    return Choice(model.cohort_id, model.path, model.digest, confirm, means)


def _is_bad(losses: NDArray[np.float64], reporter: DriftReporter) -> bool:
    # A model that broke down elsewhere is bad here; it must not cost this client its night.
    return not np.isfinite(losses).all() or reporter.origin_still_bad(losses)


def _index_of(cohort_id: str | None, models: Sequence[ModelOfChoice], otherwise: int) -> int:
    """Return where a cohort's model is among the others; it is not if it equals the own one."""
    others = [index for index, m in enumerate(models) if index > 0 and m.cohort_id == cohort_id]
    return others[0] if others else otherwise


def _mean_difference(one: ArrayLike, two: ArrayLike) -> tuple[float, float]:
    """Return the mean of ``one - two``, sample by sample, and its standard error.

    Raises
    ------
    InvalidUpdateError
        If there are no samples, or not as many of both.
    """
    first, second = np.asarray(one, np.float64).ravel(), np.asarray(two, np.float64).ravel()
    if first.size != second.size or not first.size:
        raise InvalidUpdateError(
            f"{first.size} and {second.size} losses, wanted the same samples for both models"
        )
    difference = first - second
    return float(difference.mean()), float(difference.std() / math.sqrt(difference.size))


def best_model(
    losses: Sequence[ArrayLike],
    trainable: Sequence[bool] | None = None,
    *,
    rule: ChoiceRule | None = None,
) -> int:
    """Return the index of the best model, of equally good ones the first.

    Parameters
    ----------
    losses : sequence of float, or of arrays of shape (n_samples,)
        Loss of each model of choice on fresh data, before training: the mean, or of every sample.
    trainable : sequence of bool, optional
        Which of them may be trained. Default: all.
    rule : ChoiceRule, optional
        When one model is clearly better than another; without it, if its mean loss is smaller. The
        first model is left only for a clearly better one; of those, the first is taken that none is
        clearly better than. Wants the losses of every sample, the same ones for all models.

    Raises
    ------
    InvalidUpdateError
        If no trainable model has a finite loss.
    """
    values = np.array([np.mean(np.asarray(loss, np.float64)) for loss in losses])
    values[~np.isfinite(values)] = np.inf
    if trainable is not None:
        values[~np.array(trainable, dtype=bool)] = np.inf
    if values.size == 0 or np.isinf(values).all():
        raise InvalidUpdateError(
            f"{values.size} models to choose from, wanted one to train with a finite loss"
        )
    best = int(np.argmin(values))
    if rule is None or best == 0:
        return best
    # Those that the best one does not surpass are as good as it: then the order says.
    good = [i for i in range(1, len(losses)) if np.isfinite(values[i])]
    better = [i for i in good if _is_clearly_better(losses[i], losses[0], rule)]
    equal = [i for i in better if not _is_clearly_better(losses[best], losses[i], rule)]
    return equal[0] if equal else 0


def _is_clearly_better(one: ArrayLike, than: ArrayLike, rule: ChoiceRule) -> bool:
    gain, error = _mean_difference(than, one)
    small = bool(np.asarray(one).mean() <= rule.ratio * np.asarray(than).mean())
    return small and (gain > rule.z_score * error or not np.isfinite(gain))
