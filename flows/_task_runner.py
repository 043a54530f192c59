"""Where the tasks of a night run: in threads, in processes, on a Dask or on a Ray cluster.

The bytes of a night are the same on all of them; what differs is the time it takes. The choice is
the machine's and not the federation's, so it is an environment variable of the process that runs
the flow, ``CLMA_TASK_RUNNER``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from clma.errors import InvalidConfigError, MissingExtraError

__all__ = ["VARIABLE", "chosen_task_runner"]

VARIABLE = "CLMA_TASK_RUNNER"
MAX_WORKERS = 4
"""Tasks at once: they read files more than they compute, and share one disk."""

_SCHEDULERS = ("tcp://", "tls://")
_RAY_HEADS = ("ray://",)


def chosen_task_runner() -> TaskRunner[Any]:
    """Return the task runner that ``CLMA_TASK_RUNNER`` names.

    Returns
    -------
    TaskRunner
        ``threads`` (default); ``processes``; ``dask`` or ``ray``: a cluster on this machine for as
        long as the flow runs; ``tcp://HOST:PORT`` or ``tls://...``: the Dask scheduler there;
        ``ray://HOST:PORT``: the Ray cluster there.

    Raises
    ------
    InvalidConfigError
        If it names none of them.
    MissingExtraError
        If it names Dask or Ray, which is not installed.
    """
    choice = os.environ.get(VARIABLE) or "threads"
    n_workers = min(MAX_WORKERS, os.cpu_count() or 1)
    if choice == "threads":
        return ThreadPoolTaskRunner(max_workers=MAX_WORKERS)
    if choice == "processes":
        return ProcessPoolTaskRunner(max_workers=n_workers)
    if choice == "dask":
        local = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": None}
        return _dask(choice, cluster_kwargs=local)
    if choice.startswith(_SCHEDULERS):
        return _dask(choice, address=choice)
    if choice == "ray":
        return _ray(choice, init_kwargs=_local_ray(n_workers))
    if choice.startswith(_RAY_HEADS):
        return _ray(choice, address=choice)
    raise InvalidConfigError(
        f"{VARIABLE} is {choice!r}, wanted threads, processes, dask, ray, "
        "or a cluster's tcp://HOST:PORT or ray://HOST:PORT"
    )


def _dask(choice: str, **options: Any) -> TaskRunner[Any]:
    try:
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError:
        raise MissingExtraError(
            f"{VARIABLE} is {choice!r}, which needs Dask: pip install 'clma[dask]'"
        ) from None
    runner: TaskRunner[Any] = DaskTaskRunner(**options)
    return runner


def _ray(choice: str, **options: Any) -> TaskRunner[Any]:
    # Read when Ray is started; it would report its use otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        from prefect_ray.task_runners import RayTaskRunner
    except ImportError:
        raise MissingExtraError(
            f"{VARIABLE} is {choice!r}, which needs Ray: pip install 'clma[ray]'"
        ) from None
    runner: TaskRunner[Any] = RayTaskRunner(**options)
    return runner


def _local_ray(n_workers: int) -> dict[str, Any]:
    return {
        "num_cpus": n_workers,
        "include_dashboard": False,
        "log_to_driver": False,
        # A worker is a new interpreter: it finds tasks and flows where this one did.
        "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
    }
