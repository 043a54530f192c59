"""Stand around the body of every task of a night, without changing what it does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import flows.round as night
from tasks.choose_round import choose_round

__all__ = ["TASKS", "witness"]

TASKS = (
    choose_round,
    night.name_run,
    night.seal_round,
    night.check_quorum,
    night.quarantine_clients,
    night.check_voters,
    night.sweep_updates,
    night.average_everybody,
    night.form_groups,
    night.place_groups,
    night.aggregate_cohort,
    night.decide_round,
    night.commit_round,
    night.publish_cohort,
    night.publish_round,
    night.open_round,
)
"""In the order of the night."""


def witness(task: Any, around: Callable[[str], AbstractContextManager[None]]) -> None:
    """Execute a task's body inside a context that is told the task's label."""
    body = task.fn

    @functools.wraps(body)
    def watched(*args: Any, **kwargs: Any) -> Any:
        names = body.__code__.co_varnames[: body.__code__.co_argcount]
        with around(_label_of(task.name, {**dict(zip(names, args, strict=False)), **kwargs})):
            return body(*args, **kwargs)

    task.fn = watched


def _label_of(name: str, arguments: dict[str, Any]) -> str:
    """Return a task's name, with the cohort or unit it is about."""
    about = [getattr(v, "cohort_id", getattr(v, "unit_id", None)) for v in arguments.values()]
    return "-".join([name, *(a for a in (*about, arguments.get("cohort_id")) if a)])
