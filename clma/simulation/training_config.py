"""How a client trains: the numbers, without the library that does it.

Examples
--------
>>> TrainingConfig(learning_rate=0.05).local_epochs
3
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from clma.errors import InvalidConfigError

__all__ = ["TrainingConfig"]


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Local training; the defaults are those of the evidence on PRONTO.

    Parameters
    ----------
    learning_rate : float, > 0
    momentum : float in [0, 1)
        Starts at zero in every round.
    batch_size, local_epochs : int, >= 1
    clip_norm : float, > 0
        Largest Euclidean norm of a step's gradient; infinite: gradients stay as they are.
    """

    learning_rate: float = 0.02
    momentum: float = 0.9
    batch_size: int = 16
    local_epochs: int = 3
    clip_norm: float = 2.0

    def __post_init__(self) -> None:
        if not (
            0 < self.learning_rate < math.inf and self.clip_norm > 0 and 0 <= self.momentum < 1
        ):
            raise InvalidConfigError(
                f"{self}: wanted learning_rate, clip_norm > 0, momentum in [0, 1)"
            )
        if min(self.batch_size, self.local_epochs) < 1:
            raise InvalidConfigError(f"{self}: wanted batch_size and local_epochs of at least 1")
