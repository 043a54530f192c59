"""How well a fleet was served: F1 on each client's own concept, cohorts and flags as in truth.

Examples
--------
>>> macro_f1(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))  # classes: .8 and .667
0.733...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError, ShapeMismatchError
from clma.simulation.fleet import Fleet

__all__ = [
    "ClientScore",
    "FleetScores",
    "adjusted_rand_index",
    "macro_auc_roc",
    "macro_f1",
    "score_fleet",
    "softmax",
]

FIRST_SCORED_ROUND = 4  # the first drift is at round 3; its clients have had one round to recover
FIRST_FLAG_ROUND = 2  # a flag needs an earlier loss


@dataclass(frozen=True, slots=True)
class ClientScore:
    """One client in one round.

    Parameters
    ----------
    round_num : int
    client_id : str
    f1 : float in [0, 1], or None
        Macro-F1 of the model it is served after the round, on `Fleet.test_windows`; None where it
        was not evaluated.
    flagged : bool or None
        Its drift flag in the round; None where it reported none.
    accuracy : float in [0, 1], or None
        Share of right predictions of the same model on the same windows.
    auc_roc : float in [0, 1], or None
        See `macro_auc_roc`; of the last round only.
    """

    round_num: int
    client_id: str
    f1: float | None
    flagged: bool | None
    accuracy: float | None = None
    auc_roc: float | None = None


@dataclass(frozen=True, slots=True)
class FleetScores:
    """Figures of one run; None where there is nothing to count.

    Parameters
    ----------
    stationary_f1, drifted_f1 : float in [0, 1], or None
        Mean over rounds >= 4 and over clients that never drift, and that do at some time.
    final_stationary_f1, final_drifted_f1 : float in [0, 1], or None
        The same in the last round.
    ari : float in [-0.5, 1], or None
        Adjusted Rand index of the final cohorts against the concepts of the last round; None where
        the schedule does not tell groups.
    n_cohorts : int
        Final cohorts with members.
    detector_recall : float in [0, 1], or None
        Share of the drifts that were flagged in their round.
    false_alarm_rate : float in [0, 1], or None
        Share of the client-rounds from round 2 on, without any change in the data, with a flag.
    bytes_up, bytes_down : int, or None
        Sent by, and to, all clients over the run, in models, losses and signatures.
    final_accuracy, final_auc_roc : float in [0, 1], or None
        Mean over all clients in the last round.
    """

    stationary_f1: float | None
    drifted_f1: float | None
    final_stationary_f1: float | None
    final_drifted_f1: float | None
    ari: float | None
    n_cohorts: int
    detector_recall: float | None
    false_alarm_rate: float | None
    bytes_up: int | None = None
    bytes_down: int | None = None
    final_accuracy: float | None = None
    final_auc_roc: float | None = None


def macro_f1(labels: NDArray[np.int64], predictions: NDArray[np.int64]) -> float:
    """Average the F1 score over the classes present in `labels`.

    Parameters
    ----------
    labels, predictions : ndarray of shape (n,)
        Class indices. A class that is only predicted costs the others' precision.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    ShapeMismatchError
        If the shapes differ or there is no label.
    """
    if labels.shape != predictions.shape or labels.size == 0:
        raise ShapeMismatchError(
            f"{labels.shape} labels and {predictions.shape} predictions, wanted as many, not 0"
        )
    scores = []
    for label in np.unique(labels):
        hits = int(((labels == label) & (predictions == label)).sum())
        scores.append(2 * hits / int((labels == label).sum() + (predictions == label).sum()))
    return float(np.mean(scores))


def macro_auc_roc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float | None:
    """Average the area under the ROC curve, each class against all others [1]_.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class indices.
    scores : ndarray of shape (n, n_classes)
        The higher, the more the class; only the order within a column counts.

    Returns
    -------
    float in [0, 1], or None
        Over the classes present in `labels`; None where only one is, or a score is not finite.

    Raises
    ------
    ShapeMismatchError
        If there is no label, or not one row of scores for each.

    References
    ----------
    .. [1] Fawcett (2006), "An introduction to ROC analysis", Pattern Recognition Letters 27,
       section 9.2; unweighted.
    """
    if len(labels) != len(scores) or labels.size == 0:
        raise ShapeMismatchError(
            f"{labels.shape} labels and {scores.shape} scores, wanted as many rows, not 0"
        )
    present = np.unique(labels)
    if len(present) < 2 or not np.isfinite(scores).all():
        return None
    from sklearn.metrics import roc_auc_score

    return float(np.mean([roc_auc_score(labels == c, scores[:, c]) for c in present]))


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Turn logits into probabilities, row by row; logits of two rows cannot be compared."""
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def adjusted_rand_index(truth: Sequence[str], found: Sequence[str]) -> float:
    """Compare two groupings of the same clients: 1 is equal, 0 is chance.

    Parameters
    ----------
    truth, found : sequence of str
        Group of each client, in one order.

    References
    ----------
    .. [1] Hubert and Arabie (1985), "Comparing partitions", Journal of Classification 2.
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(list(truth), list(found)))


def score_fleet(
    fleet: Fleet, scores: Iterable[ClientScore], cohorts: Mapping[str, str]
) -> FleetScores:
    """Sum up a run.

    Parameters
    ----------
    fleet : Fleet
        Holds the truth.
    scores : iterable of ClientScore
        In any order, each client and round at most once.
    cohorts : mapping of client_id to cohort_id
        After the last round; clients without a cohort are left out.

    Raises
    ------
    InvalidConfigError
        If there is no score, or a client and round come twice.
    """
    rows = sorted(scores, key=lambda row: (row.round_num, row.client_id))
    places = {(row.round_num, row.client_id) for row in rows}
    if not rows or len(places) < len(rows):
        raise InvalidConfigError(
            f"{len(rows)} scores of {len(places)} clients and rounds, wanted one each, not 0"
        )
    last = rows[-1].round_num
    drifted = set(fleet.drifted_clients)
    final = [row for row in rows if row.round_num == last]
    settled = [row for row in rows if row.round_num >= FIRST_SCORED_ROUND]
    members = sorted(cohorts)
    return FleetScores(
        stationary_f1=_mean_f1(settled, set(fleet.client_ids) - drifted),
        drifted_f1=_mean_f1(settled, drifted),
        final_stationary_f1=_mean_f1(final, set(fleet.client_ids) - drifted),
        final_drifted_f1=_mean_f1(final, drifted),
        ari=adjusted_rand_index(
            [fleet.concept(c, last) for c in members], [cohorts[c] for c in members]
        )
        if members and fleet.schedule.tells_groups
        else None,
        n_cohorts=len(set(cohorts.values())),
        detector_recall=_flag_share(r for r in rows if fleet.drifts(r.client_id, r.round_num)),
        false_alarm_rate=_flag_share(
            r
            for r in rows
            if r.round_num >= FIRST_FLAG_ROUND and not fleet.changes(r.client_id, r.round_num)
        ),
        final_accuracy=_mean(row.accuracy for row in final),
        final_auc_roc=_mean(row.auc_roc for row in final),
    )


def _mean_f1(rows: Iterable[ClientScore], client_ids: set[str]) -> float | None:
    return _mean(row.f1 for row in rows if row.client_id in client_ids)


def _flag_share(rows: Iterable[ClientScore]) -> float | None:
    return _mean(row.flagged for row in rows)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
