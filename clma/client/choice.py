"""Choose the model to train: the one whose loss on this round's fresh data is smallest.

Examples
--------
>>> best_model([0.95, 0.85, 0.85])
1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clma.errors import InvalidUpdateError

__all__ = ["best_model"]


def best_model(losses: Sequence[float], trainable: Sequence[bool] | None = None) -> int:
    """Return the index of the smallest loss, of equal ones the first.

    Parameters
    ----------
    losses : sequence of float
        Mean loss of each model of choice on fresh data, before training.
    trainable : sequence of bool, optional
        Which of them may be trained. Default: all.

    Raises
    ------
    InvalidUpdateError
        If no trainable model has a finite loss.
    """
    values = np.array(losses, dtype=np.float64)
    values[~np.isfinite(values)] = np.inf
    if trainable is not None:
        values[~np.array(trainable, dtype=bool)] = np.inf
    if values.size == 0 or np.isinf(values).all():
        raise InvalidUpdateError(
            f"{values.size} models to choose from, wanted one to train with a finite loss"
        )
    return int(np.argmin(values))
