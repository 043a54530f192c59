"""Lines for Prefect's log that stay readable, and few, in a fleet of thousands.

Prefect keeps every line in its database; what is left out stands in the round's tables.

Examples
--------
>>> named([f"p{i}" for i in range(40)], most=3)
'p0, p1, p2 and 37 more'
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

__all__ = ["log_lines", "named"]

MOST_LINES = 20
MOST_NAMES = 10


def named(names: Sequence[str], *, most: int = MOST_NAMES) -> str:
    """Return the first names, and how many more there are; ``nobody`` for none."""
    shown = ", ".join(names[:most]) or "nobody"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def log_lines(
    log: Callable[[str], None], lines: Iterable[str], table: str, *, most: int = MOST_LINES
) -> None:
    """Log the first lines, and how many more there are and in which table.

    Parameters
    ----------
    log : callable
        A logger's method of one level.
    lines : iterable of str
    table : str
        Of the round, where the rest can be read.
    most : int >= 1
    """
    left = iter(lines)
    for line in itertools.islice(left, most):
        log(line)
    n_left = sum(1 for _ in left)
    if n_left:
        log(f"... and {n_left} more: see {table}.parquet of the round")
