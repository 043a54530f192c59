"""What a publication tells the outside, and what it is told about the run that publishes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PrefectRun", "PublishReport", "PublishedCohort", "PublishedRound"]


@dataclass(frozen=True, slots=True)
class PrefectRun:
    """The flow run that publishes, for the links back to it."""

    run_id: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class PublishedCohort:
    """Where a cohort's round is found.

    Parameters
    ----------
    cohort_id : str
    run_id : str
    run_created : bool
        False: an earlier attempt made the run.
    version : int or None
        Of the registered model; None where the round promoted no model.
    version_created : bool
    champion : int or None
        Version that the alias points to, if this call knows one.
    """

    cohort_id: str
    run_id: str
    run_created: bool
    version: int | None = None
    version_created: bool = False
    champion: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedRound:
    """Where a round is found.

    Parameters
    ----------
    round_num : int
    experiment_id, run_id : str
    run_created : bool
        False: an earlier attempt made the run.
    note : str
        The night in a few lines of Markdown.
    """

    round_num: int
    experiment_id: str
    run_id: str
    run_created: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What `rebuild` did.

    Parameters
    ----------
    rounds : tuple of int
        All committed ones.
    runs_created, runs_reused, versions_created, versions_reused : int
    mended : int
        Things that were there and other than the ledger says.
    forgotten : int
        Clients that the ledger forgot and MLflow still showed.
    """

    rounds: tuple[int, ...]
    runs_created: int
    runs_reused: int
    versions_created: int
    versions_reused: int
    mended: int = 0
    forgotten: int = 0
