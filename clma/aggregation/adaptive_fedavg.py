"""Adaptive-FedAvg: clients learn slower as the model settles, and faster again when it moves.

Canonaco, Bergamasco, Mongelluzzo and Roveri (2021), "Adaptive Federated Learning in Presence of
Concept Drift", IJCNN, section III. The model is the weighted mean; only the clients' learning rate
is other than in FedAvg.

Examples
--------
>>> state = AdaptiveState.fresh(1)
>>> for weight in (2.0, 4.0, 4.0):
...     state = observe_model(state, np.array([weight]))
...     print(round(learning_rate_factor(state), 4))
1.0
0.5
0.2366
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.errors import ShapeMismatchError

__all__ = ["AdaptiveState", "learning_rate_factor", "observe_model"]

BETA = 0.5
"""The paper's beta 1, beta 2 and beta 3: of the mean, of the variance and of the ratio."""

MIN_FACTOR = 1e-6
"""A rate of 0 would be the end of learning, whatever the model does afterwards."""

FACTOR_DIGITS = 9
"""Digits of a factor that clients are told: what lies beyond depends on the machine's BLAS."""


@dataclass(frozen=True, slots=True)
class AdaptiveState:
    """What the server remembers of all models so far, as running means that start at 0.

    Parameters
    ----------
    n_rounds : int >= 0
        t, models seen.
    mean : ndarray of shape (n_parameters,)
        Of the weights; in units of the parameters.
    variance : float >= 0
        Of the squared distance of a model from the mean before it, per parameter.
    ratio : float >= 0
        Of a round's variance to the one before; dimensionless.
    """

    n_rounds: int
    mean: NDArray[np.float64]
    variance: float = 0.0
    ratio: float = 0.0

    @classmethod
    def fresh(cls, n_parameters: int) -> AdaptiveState:
        """Return the state before the first round."""
        return cls(0, np.zeros(n_parameters))


def observe_model(state: AdaptiveState, weights: NDArray[np.float64]) -> AdaptiveState:
    """Take in the averaged model of a round.

    Parameters
    ----------
    state : AdaptiveState
        Not modified.
    weights : ndarray of shape (n_parameters,)
        Not modified.

    Raises
    ------
    ShapeMismatchError
        If the state is of another model.

    Notes
    -----
    All three means are divided by 1 - beta^t, which takes out that they start at 0. The first model
    is compared with 0 itself, and the first ratio is 1; so is one to a variance of 0.
    """
    if weights.shape != state.mean.shape:
        raise ShapeMismatchError(
            f"model has {weights.size} parameters, the optimiser's state {state.mean.size}"
        )
    gap = weights - _corrected(state.mean, state.n_rounds)
    variance = BETA * state.variance + (1 - BETA) * float(np.mean(gap * gap))
    before = float(_corrected(state.variance, state.n_rounds))
    now = float(_corrected(variance, state.n_rounds + 1))
    return AdaptiveState(
        state.n_rounds + 1,
        BETA * state.mean + (1 - BETA) * weights,
        variance,
        BETA * state.ratio + (1 - BETA) * (now / before if before > 0 else 1.0),
    )


def learning_rate_factor(state: AdaptiveState) -> float:
    """Return what the clients' first learning rate is multiplied by in the next round.

    Parameters
    ----------
    state : AdaptiveState

    Returns
    -------
    float in (0, 1]
        min(1, ratio / t); 1 before the first round. It never falls below `MIN_FACTOR`.
    """
    if state.n_rounds == 0:
        return 1.0
    factor = float(_corrected(state.ratio, state.n_rounds)) / state.n_rounds
    return round(min(1.0, max(factor, MIN_FACTOR)), FACTOR_DIGITS)


def _corrected(mean: NDArray[np.float64] | float, n_rounds: int) -> NDArray[np.float64] | float:
    return mean / (1 - BETA**n_rounds) if n_rounds else mean
