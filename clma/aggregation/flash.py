"""Flash: a server step that gets longer where the updates' size changes faster than it used to.

Panchal, Choudhary, Mitra, Mukherjee, Sarkhel, Mitra and Guan (2023), "Flash: Concept Drift
Adaptation in Federated Learning", ICML, Algorithm 1, server side.

Examples
--------
>>> _, step = flash_step(FlashState.fresh(2), np.array([0.1, -0.02]), learning_rate=0.01)
>>> step.round(6).tolist()
[0.086853, -0.007043]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.errors import ShapeMismatchError

__all__ = ["FlashState", "flash_step"]

BETA_MEAN = 0.9
BETA_SQUARE = 0.99
TAU = 1e-3
"""The paper's beta 1, beta 2 and tau; tau is in units of the parameters."""


@dataclass(frozen=True, slots=True)
class FlashState:
    """What the server remembers of all rounds so far.

    Parameters
    ----------
    mean : ndarray of shape (n_parameters,)
        m, of the updates; in units of the parameters.
    square : ndarray of shape (n_parameters,), >= 0
        v, of the squared updates.
    drift : ndarray of shape (n_parameters,)
        d, of what a squared update had beyond v.
    """

    mean: NDArray[np.float64]
    square: NDArray[np.float64]
    drift: NDArray[np.float64]

    @classmethod
    def fresh(cls, n_parameters: int) -> FlashState:
        """Return the state before the first round."""
        zeros = np.zeros(n_parameters)
        return cls(zeros, np.full(n_parameters, TAU**2), zeros)


def flash_step(
    state: FlashState, update: NDArray[np.float64], *, learning_rate: float
) -> tuple[FlashState, NDArray[np.float64]]:
    """Take in the mean update of a round.

    Parameters
    ----------
    state : FlashState
        Not modified.
    update : ndarray of shape (n_parameters,)
        Mean of the clients' updates, new minus reference. Not modified.
    learning_rate : float > 0
        Of the server; dimensionless.

    Returns
    -------
    FlashState
    ndarray of shape (n_parameters,)
        What is added to the model that was sent; finite for any finite update below 1e150.

    Raises
    ------
    ShapeMismatchError
        If the state is of another model.

    Notes
    -----
    The step is eta m / (sqrt(v) - d + tau). Where d, which is in squared units, passes sqrt(v), the
    paper's denominator falls to 0 and below, and the model would leap or go back; here it is tau at
    least. The rate at which d forgets is |v'| / (|u^2 - v| + |v'|) with v' of the round before.
    The client side of the paper, which stops training early by its validation loss, is no part of
    this.
    """
    if update.shape != state.mean.shape:
        raise ShapeMismatchError(
            f"update has {update.size} parameters, the optimiser's state {state.mean.size}"
        )
    squared = update * update
    mean = BETA_MEAN * state.mean + (1 - BETA_MEAN) * update
    square = BETA_SQUARE * state.square + (1 - BETA_SQUARE) * squared
    excess = squared - square
    size = np.abs(excess) + state.square
    beta = np.divide(state.square, size, out=np.ones_like(size), where=size > 0)
    drift = beta * state.drift + (1 - beta) * excess
    denominator = np.maximum(np.sqrt(square) - drift + TAU, TAU)
    return FlashState(mean, square, drift), learning_rate * mean / denominator
