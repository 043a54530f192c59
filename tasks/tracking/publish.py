"""Project committed rounds to MLflow: one run a round, below it one a cohort, and their models.

Everything is found again by tag, so publishing twice is publishing once, and a retry after any
failure goes on where the earlier attempt stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from clma.ledger.federation import Federation
from clma.ledger.lease import Lease
from clma.rows import CohortRow, Gate
from tasks.tracking.artifacts import Curves, draw_curves, draw_figures, log_files, round_files
from tasks.tracking.history import History
from tasks.tracking.location import Tracking
from tasks.tracking.models import CohortModelFiles, link_model, move_champion, register_version
from tasks.tracking.names import (
    TAG_COHORT,
    TAG_DIGEST,
    TAG_GATE,
    TAG_PREFECT_RUN,
    TAG_PREFECT_URL,
    TAG_ROUND,
    round_key,
)
from tasks.tracking.outage import outages_in_one_line
from tasks.tracking.publisher import one_publisher
from tasks.tracking.reports import PrefectRun, PublishedCohort, PublishedRound, PublishReport
from tasks.tracking.runs import (
    Experiment,
    OpenRun,
    RunSpec,
    claim_experiment,
    ensure_run,
    open_experiment,
    open_run,
    published_keys,
)
from tasks.tracking.summary import (
    active_rows,
    cohort_metrics,
    cohort_note,
    cohort_params,
    flatten_settings,
    round_metrics,
    round_note,
)

__all__ = [
    "Night",
    "missed_rounds",
    "open_night",
    "publish_cohort",
    "publish_round",
    "publish_rounds",
    "publish_whole",
    "published_rounds",
]


def publish_cohort(
    federation: Federation,
    round_num: int,
    cohort_id: str,
    tracking: Tracking,
    *,
    metrics: Mapping[str, float] | None = None,
    prefect: PrefectRun | None = None,
) -> PublishedCohort:
    """Publish one active cohort of a committed round: its run and, if promoted, its model.

    The alias follows the ledger's newest state: publishing an old round never moves it back.

    Parameters
    ----------
    federation : Federation
    round_num : int
    cohort_id : str
    tracking : Tracking
    metrics : mapping of name to value, optional
        Further ones of this cohort; values that are not finite go to a tag.
    prefect : PrefectRun, optional

    Raises
    ------
    RoundStateError
        If the round is not committed, or the cohort is not active in it.
    DamagedStoreError
        If the model is missing or was changed.
    """
    with open_night(federation, tracking) as night:
        return _publish_cohort(night, round_num, cohort_id, metrics, prefect)


def publish_round(
    federation: Federation,
    round_num: int,
    tracking: Tracking,
    *,
    metrics: Mapping[str, float] | None = None,
    curves: Curves | None = None,
    prefect: PrefectRun | None = None,
) -> PublishedRound:
    """Publish a committed round: counts, settings, tables, figures and a short account.

    Parameters
    ----------
    federation : Federation
    round_num : int
    tracking : Tracking
    metrics : mapping of name to value, optional
        Further ones, for example ``f1/stationary`` of a simulation; values that are not finite go
        to a tag.
    curves : mapping, optional
        Metric to client or cohort to round to value: one figure for each metric.
    prefect : PrefectRun, optional

    Raises
    ------
    RoundStateError
        If the round is not committed.
    DamagedStoreError
        If a table is missing or was changed.
    """
    with open_night(federation, tracking) as night:
        return _publish_round(night, round_num, metrics, curves, prefect)


def publish_whole(federation: Federation, round_num: int, tracking: Tracking) -> PublishReport:
    """Publish a committed round with all its cohorts; what is there is left as it is.

    Raises
    ------
    RoundStateError
        If the round is not committed.
    DamagedStoreError
        If a table or a model is missing or was changed.
    """
    with open_night(federation, tracking) as night:
        return publish_rounds(night, [round_num])


def published_rounds(federation: Federation, tracking: Tracking) -> tuple[int, ...]:
    """Return the committed rounds that are completely in MLflow, rising."""
    history, keys = History(federation), _published_keys(federation, tracking)
    return tuple(
        r
        for r in history.rounds
        if {
            round_key(federation.name, r),
            *(
                round_key(federation.name, r, row.cohort_id)
                for row in active_rows(history.cohorts(r))
            ),
        }
        <= keys
    )


def missed_rounds(federation: Federation, tracking: Tracking) -> tuple[int, ...]:
    """Return the committed rounds whose own run, which is written last, is not complete in MLflow.

    Reads the ledger only and none of the tables, so it is cheap after years of nights.
    """
    rounds, keys = History(federation).rounds, _published_keys(federation, tracking)
    return tuple(r for r in rounds if round_key(federation.name, r) not in keys)


def _published_keys(federation: Federation, tracking: Tracking) -> frozenset[str]:
    with outages_in_one_line(tracking):
        return published_keys(open_experiment(tracking, federation.name))


def publish_rounds(night: Night, rounds: Sequence[int]) -> PublishReport:
    """Publish committed rounds with all their cohorts; what is there is left as it is."""
    cohorts: list[PublishedCohort] = []
    runs_created = 0
    for r in rounds:
        active = active_rows(night.history.cohorts(r))
        # Made here and not by its first cohort, so that it is counted once.
        runs_created += ensure_run(night.experiment, night.find_round(r)).created
        cohorts += [_publish_cohort(night, r, row.cohort_id) for row in active]
        _publish_round(night, r)
    runs_created += sum(p.run_created for p in cohorts)
    versions_created = sum(p.version_created for p in cohorts)
    return PublishReport(
        rounds=tuple(rounds),
        runs_created=runs_created,
        runs_reused=len(cohorts) + len(rounds) - runs_created,
        versions_created=versions_created,
        versions_reused=sum(p.version is not None for p in cohorts) - versions_created,
    )


@dataclass(frozen=True, slots=True)
class Night:
    """What all publications of one call share.

    Parameters
    ----------
    federation : Federation
    tracking : Tracking
    history : History
    experiment : Experiment
    lease : Lease
        Of the federation's only publisher.
    """

    federation: Federation
    tracking: Tracking
    history: History
    experiment: Experiment
    lease: Lease

    def tags(self, round_num: int, prefect: PrefectRun | None) -> dict[str, str]:
        """Return the tags of a round's runs."""
        tags = {TAG_ROUND: str(round_num)}
        if prefect is not None:
            tags[TAG_PREFECT_RUN] = prefect.run_id
            tags |= {TAG_PREFECT_URL: prefect.url} if prefect.url else {}
        return tags

    def find_round(self, round_num: int) -> RunSpec:
        """Return what a round's run is found or made by."""
        return RunSpec(
            key=round_key(self.federation.name, round_num),
            name=f"round {round_num:03d}",
            times=self.history.times(round_num),
        )

    def find_cohort(self, round_num: int, cohort_id: str) -> RunSpec:
        """Return what a cohort's run is found or made by, below the run of its round."""
        parent = ensure_run(self.experiment, self.find_round(round_num))
        return RunSpec(
            key=round_key(self.federation.name, round_num, cohort_id),
            name=f"cohort {cohort_id}",
            times=self.history.times(round_num),
            parent_run_id=parent.run_id,
        )


@contextmanager
def open_night(federation: Federation, tracking: Tracking) -> Iterator[Night]:
    """Be the federation's only publisher, with its experiment made or restored."""
    with one_publisher(federation) as lease, outages_in_one_line(tracking):
        experiment = open_experiment(tracking, federation.name)
        claim_experiment(experiment, federation.identity())
        yield Night(federation, tracking, History(federation), experiment, lease)


def _publish_cohort(
    night: Night,
    round_num: int,
    cohort_id: str,
    metrics: Mapping[str, float] | None = None,
    prefect: PrefectRun | None = None,
) -> PublishedCohort:
    night.lease.check()
    row = night.history.cohort(round_num, cohort_id)
    tags = {
        **night.tags(round_num, prefect),
        TAG_COHORT: cohort_id,
        TAG_DIGEST: row.model_digest,
        TAG_GATE: row.gate.value,
    }
    with open_run(night.experiment, night.find_cohort(round_num, cohort_id), tags) as run:
        decision = night.history.decision(round_num)
        if not run.complete or prefect is not None:
            url = _prefect_url(run, prefect)
            run.set_note(cohort_note(night.federation.name, round_num, row, url))
        run.log_params(cohort_params(row))
        numbers = {**cohort_metrics(row, decision), **(metrics or {})}
        run.log_metrics(numbers, step=round_num, at=night.history.times(round_num).told)
        version, created = None, False
        night.lease.check()
        if row.gate is Gate.PROMOTED:
            files = _files(night, round_num, row)
            version, created = register_version(night.experiment, run.run_id, files)
            if run.created and not created:
                link_model(night.experiment, run.run_id, files)
        champion = _follow_state(night, cohort_id)
    return PublishedCohort(cohort_id, run.run_id, run.created, version, created, champion)


def _prefect_url(run: OpenRun, prefect: PrefectRun | None) -> str | None:
    """Return the link to the flow run, from an earlier attempt if this one has none."""
    return run.run.data.tags.get(TAG_PREFECT_URL) if prefect is None else prefect.url


def _files(night: Night, round_num: int, row: CohortRow) -> CohortModelFiles:
    return CohortModelFiles(
        config=night.federation.config_at_seal(round_num),
        cohort_id=row.cohort_id,
        round_num=round_num,
        digest=row.model_digest,
        weights=night.federation.model_path(row.model_digest),
    )


def _follow_state(night: Night, cohort_id: str) -> int | None:
    digest = night.federation.state().cohorts[cohort_id].model_digest
    return move_champion(night.experiment, cohort_id, digest)


def _publish_round(
    night: Night,
    round_num: int,
    metrics: Mapping[str, float] | None = None,
    curves: Curves | None = None,
    prefect: PrefectRun | None = None,
) -> PublishedRound:
    night.lease.check()
    name, decision = night.federation.name, night.history.decision(round_num)
    config = night.federation.config_at_seal(round_num)
    spec = night.find_round(round_num)
    with open_run(night.experiment, spec, night.tags(round_num, prefect)) as run:
        if not run.complete or prefect is not None:
            run.set_note(round_note(name, decision, _prefect_url(run, prefect)))
        run.log_params(flatten_settings(config.model_dump(mode="json")))
        numbers = {**round_metrics(decision), **(metrics or {})}
        run.log_metrics(numbers, step=round_num, at=spec.times.told)
        files: dict[str, bytes] = {}
        if not run.complete:
            files |= round_files(night.history, round_num, config)
            files |= draw_figures(night.history, round_num, name)
        files |= draw_curves(curves or {}, name)
        if files:
            log_files(run, files)
    return PublishedRound(
        round_num,
        night.experiment.experiment_id,
        run.run_id,
        run.created,
        round_note(name, decision),
    )
