from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from clma.errors import ConflictError, RoundStateError
from clma.ledger.federation import Federation
from clma.rows import Gate
from tasks.tracking import (
    CHAMPION,
    PrefectRun,
    Tracking,
    models,
    publish_cohort,
    publish_round,
    published_rounds,
    rebuild,
)
from tests.tasks.nights import CLIENTS, pass_night, start

pytestmark = pytest.mark.slow


@pytest.fixture
def federation(tmp_path: Path, request: pytest.FixtureRequest) -> Federation:
    """Two nights; in the second p2 and p3 drift into a cohort of their own."""
    federation = start(tmp_path, re.sub(r"\W+", "-", request.node.name)[:60])
    pass_night(federation)
    pass_night(federation, drifted=("p2", "p3"))
    return federation


def client_of(tracking: Tracking) -> MlflowClient:
    return MlflowClient(tracking.uri, tracking.uri)


def runs_of(federation: Federation, tracking: Tracking, key: str = "") -> list[Run]:
    client = client_of(tracking)
    experiment = client.get_experiment_by_name(federation.name)
    assert experiment is not None
    wanted = f"{federation.name}/{key}"
    found = client.search_runs([experiment.experiment_id])
    return [r for r in found if r.data.tags["clma.round_key"].startswith(wanted)]


def champion_of(federation: Federation, tracking: Tracking, cohort_id: str) -> str:
    name = f"{federation.name}.{cohort_id}"
    version = client_of(tracking).get_model_version_by_alias(name, CHAMPION)
    return str(version.tags["clma.model_digest"])


def versions_of(federation: Federation, tracking: Tracking) -> list[str]:
    found = client_of(tracking).search_model_versions()
    return sorted(
        f"{v.tags['clma.round']}/{v.tags['clma.cohort']}"
        for v in found
        if v.tags["clma.federation"] == federation.name
    )


def test_publishing_twice_is_publishing_once(federation: Federation, tracking: Tracking) -> None:
    first, second = rebuild(federation, tracking), rebuild(federation, tracking)

    assert (first.runs_created, first.runs_reused, first.versions_created) == (5, 0, 3)
    assert (second.runs_created, second.runs_reused, second.versions_created) == (0, 5, 0)
    assert second.versions_reused == 3
    assert len(runs_of(federation, tracking)) == 5
    assert versions_of(federation, tracking) == ["1/c0", "2/c0", "2/c1"]


def test_metrics_are_logged_once(federation: Federation, tracking: Tracking) -> None:
    for _ in range(2):
        publish_round(federation, 1, tracking, metrics={"f1/stationary": 0.8})
    (run,) = runs_of(federation, tracking, "1")

    points = client_of(tracking).get_metric_history(run.info.run_id, "f1/stationary")
    assert [(p.step, p.value) for p in points] == [(1, 0.8)]
    assert (run.data.metrics["accepted"], run.data.metrics["cohort_c0/n_members"]) == (4, 4)
    assert run.data.params["cohorting.method"] == "cosine"


def test_cohorts_are_shown_below_their_round(federation: Federation, tracking: Tracking) -> None:
    rebuild(federation, tracking)
    (parent,) = [r for r in runs_of(federation, tracking, "2") if r.info.run_name == "round 002"]

    children = [
        r.info.run_name
        for r in runs_of(federation, tracking)
        if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id
    ]
    assert sorted(children) == ["cohort c0", "cohort c1"]


def test_a_metric_that_is_not_finite_is_a_tag(federation: Federation, tracking: Tracking) -> None:
    bad = {"f1": math.nan, "loss": math.inf, "ari": 0.5}
    publish_cohort(federation, 1, "c0", tracking, metrics=bad)
    (run,) = [r for r in runs_of(federation, tracking, "1") if r.info.run_name == "cohort c0"]

    assert run.data.tags["clma.not_finite"] == "2: f1, loss"
    assert run.data.metrics["ari"] == 0.5
    assert all(math.isfinite(v) for v in run.data.metrics.values())
    assert not {"f1", "loss"} & set(run.data.metrics)


def test_champion_is_what_the_ledger_serves(federation: Federation, tracking: Tracking) -> None:
    rebuild(federation, tracking)

    for cohort in federation.state().cohorts.values():
        assert champion_of(federation, tracking, cohort.cohort_id) == cohort.model_digest


def test_an_old_round_does_not_move_the_champion(
    federation: Federation, tracking: Tracking
) -> None:
    rebuild(federation, tracking)
    pass_night(federation)
    publish_cohort(federation, 3, "c0", tracking)
    for round_num in (1, 2):
        publish_cohort(federation, round_num, "c0", tracking)

    served = federation.state().cohorts["c0"].model_digest
    assert champion_of(federation, tracking, "c0") == served


def test_publishing_behind_the_ledger_sets_no_champion(
    federation: Federation, tracking: Tracking
) -> None:
    """Round 1's model is history by now; nobody may be told to serve it."""
    published = publish_cohort(federation, 1, "c0", tracking)

    assert (published.version, published.champion) == (1, None)


@pytest.mark.parametrize("step", ["_save_model", "_ensure_registered", "move_champion"])
def test_a_retry_goes_on_where_the_failure_was(
    federation: Federation, tracking: Tracking, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError("disk full")

    place = "tasks.tracking.publish" if step == "move_champion" else models.__name__
    with monkeypatch.context() as patch:
        patch.setattr(f"{place}.{step}", fail)
        with pytest.raises(OSError, match="disk full"):
            publish_cohort(federation, 2, "c0", tracking)
    broken = [r.info.status for r in runs_of(federation, tracking, "2/c0")]
    publish_cohort(federation, 2, "c0", tracking)

    assert broken == ["FAILED"]
    assert [r.info.status for r in runs_of(federation, tracking, "2/c0")] == ["FINISHED"]
    assert versions_of(federation, tracking) == ["2/c0"]
    assert champion_of(federation, tracking, "c0") == federation.state().cohorts["c0"].model_digest


def test_a_model_that_was_uploaded_is_not_uploaded_again(
    federation: Federation, tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = models._save_model
    monkeypatch.setattr(models, "_save_model", lambda *a: (saved.append(a), save(*a)))
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "create_model_version", _gone)
        with pytest.raises(OSError, match="gone"):
            publish_cohort(federation, 2, "c1", tracking)
    publish_cohort(federation, 2, "c1", tracking)

    assert len(saved) == 1
    assert versions_of(federation, tracking) == ["2/c1"]


def _gone(*args: object, **kwargs: object) -> None:
    raise OSError("gone")


def test_a_model_that_was_left_half_made_is_not_shown(
    federation: Federation, tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed night was uploading stays Pending in MLflow for good if nobody deletes it."""
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_model_artifacts", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_cohort(federation, 1, "c0", tracking)

    publish_cohort(federation, 1, "c0", tracking)

    (run,) = runs_of(federation, tracking, "1/c0")
    (model,) = client_of(tracking).search_logged_models([run.info.experiment_id])
    assert model.status.value == "READY"
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]


def test_threads_of_one_night_share_one_parent(federation: Federation, tracking: Tracking) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda c: publish_cohort(federation, 2, c, tracking), ["c0", "c1"]))

    parents = [r for r in runs_of(federation, tracking) if r.info.run_name == "round 002"]
    assert len(parents) == 1


def test_a_cohort_that_keeps_its_model_gets_no_version(tmp_path: Path, tracking: Tracking) -> None:
    federation = start(tmp_path, "keeps", round={"cohort_quorum": 4})
    pass_night(federation)
    pass_night(federation, senders=CLIENTS[:3])
    rebuild(federation, tracking)

    (row,) = [r for r in runs_of(federation, tracking, "2") if r.info.run_name == "cohort c0"]
    assert row.data.tags["clma.gate"] == Gate.HELD.value
    assert versions_of(federation, tracking) == ["1/c0"]
    assert champion_of(federation, tracking, "c0") == federation.state().cohorts["c0"].model_digest


def test_a_round_shows_tables_figures_and_its_configuration(
    federation: Federation, tracking: Tracking
) -> None:
    curves = {"macro-F1": {"p0": {1: 0.5, 2: 0.8}}}
    published = publish_round(federation, 2, tracking, curves=curves)
    client = client_of(tracking)

    paths = [
        artifact.path
        for folder in ("", "tables", "figures")
        for artifact in client.list_artifacts(published.run_id, folder)
    ]
    stored = federation.store.get("rounds/round=000002/cohorts.parquet")
    copy = client.download_artifacts(published.run_id, "tables/cohorts.parquet")
    assert {"federation.toml", "tables/updates.csv", "figures/macro-F1.png"} <= set(paths)
    assert {"figures/cohort_heatmap.png", "figures/cohort_sizes.png"} <= set(paths)
    assert Path(copy).read_bytes() == stored


def test_curves_can_be_added_to_a_published_round(
    federation: Federation, tracking: Tracking
) -> None:
    published = publish_round(federation, 2, tracking)
    publish_round(federation, 2, tracking, curves={"macro-F1": {"p0": {1: 0.5, 2: 0.8}}})

    figures = client_of(tracking).list_artifacts(published.run_id, "figures")
    assert {"figures/cohort_heatmap.png", "figures/macro-F1.png"} <= {f.path for f in figures}


def test_runs_link_back_to_prefect(federation: Federation, tracking: Tracking) -> None:
    url = "http://127.0.0.1:4200/runs/flow-run/0a1b"
    publish_round(federation, 2, tracking, prefect=PrefectRun("0a1b", url))
    rebuild(federation, tracking)
    (run,) = [r for r in runs_of(federation, tracking, "2") if r.info.run_name == "round 002"]

    assert run.data.tags["clma.prefect_run_id"] == "0a1b"
    assert f"[Prefect run]({url})" in run.data.tags["mlflow.note.content"]
    assert "p2, p3 moved from c0 to c1" in run.data.tags["mlflow.note.content"]


def test_a_round_is_published_when_all_its_runs_are(
    federation: Federation, tracking: Tracking
) -> None:
    publish_round(federation, 1, tracking)
    before = published_rounds(federation, tracking)
    publish_cohort(federation, 1, "c0", tracking)

    assert (before, published_rounds(federation, tracking)) == ((), (1,))


def test_what_is_not_committed_is_not_published(federation: Federation, tracking: Tracking) -> None:
    with pytest.raises(RoundStateError, match=r"round 3 of .* is not committed"):
        publish_round(federation, 3, tracking)
    with pytest.raises(RoundStateError, match="no active cohort 'c9', active are c0, c1"):
        publish_cohort(federation, 2, "c9", tracking)


def test_an_experiment_that_was_deleted_comes_back(
    federation: Federation, tracking: Tracking
) -> None:
    rebuild(federation, tracking)
    client = client_of(tracking)
    client.delete_experiment(client.get_experiment_by_name(federation.name).experiment_id)

    assert rebuild(federation, tracking).runs_created == 0


def test_two_federations_of_one_name_are_not_mixed(tmp_path: Path, tracking: Tracking) -> None:
    first, second = (start(tmp_path / str(n), "twins", seed=n) for n in range(2))
    for federation in (first, second):
        pass_night(federation)
    publish_round(first, 1, tracking)

    with pytest.raises(ConflictError, match="holds another federation of that name"):
        publish_round(second, 1, tracking)
