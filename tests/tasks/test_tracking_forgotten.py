"""A client that the ledger forgot is gone from MLflow after the next publication."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from clma.forget import forget_client
from clma.ledger.federation import Federation
from tasks.tracking import Tracking, models, publish_round, rebuild, resolve_tracking
from tasks.tracking.compare import comparison_with
from tasks.tracking.forgetting import drop_freed_text
from tests.tasks.nights import pass_night, start
from tests.tasks.test_tracking_publish import champion_of, runs_of

pytestmark = pytest.mark.slow

GONE = "plant-07"
CLIENTS = ("p0", "p1", "p2", GONE)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two published nights, and a copy of them; in the second the client drifts with another."""
    root, copy = tmp_path_factory.mktemp("forgets"), tmp_path_factory.mktemp("before")
    with pytest.MonkeyPatch.context() as patch:
        # A hundred files of source with each version say nothing here.
        patch.setattr(models, "_code", lambda _: [])
        patch.setattr("tests.tasks.nights.CLIENTS", CLIENTS)
        made = start(root, "forgets")
        pass_night(made, senders=CLIENTS, spread=0.001)
        pass_night(made, senders=CLIENTS, drifted=("p2", GONE), spread=0.001)
        rebuild(made, resolve_tracking(root))
    shutil.copytree(root, copy, dirs_exist_ok=True)
    return root, copy


@pytest.fixture
def tracking(published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """Put everything back to where MLflow knows it, the database through SQLite itself."""
    monkeypatch.setattr(models, "_code", lambda _: [])
    root, copy = published
    for folder in ("store", "mlruns/artifacts"):
        shutil.rmtree(root / folder)
        shutil.copytree(copy / folder, root / folder)
    database = "mlruns/mlflow.db"
    with (
        closing(sqlite3.connect(copy / database)) as old,
        closing(sqlite3.connect(root / database)) as new,
    ):
        old.backup(new)
    return resolve_tracking(root)


@pytest.fixture
def federation(tracking: Tracking, published: tuple[Path, Path]) -> Federation:
    return Federation.open(published[0] / "store")


def named_in(folder: Path) -> list[str]:
    """Return the files whose bytes or path hold the client's id."""
    wanted = GONE.encode()
    files = [p for p in folder.rglob("*") if p.is_file()]
    return [str(p) for p in files if wanted in p.read_bytes() or GONE in str(p)]


def lines(federation: Federation, tracking: Tracking) -> list[str]:
    return [d.line for d in comparison_with(tracking.uri)(federation)]


def old_weights(tracking: Tracking, digests: set[str]) -> list[Path]:
    files = (tracking.folder or Path()).rglob("*.safetensors")
    return [p for p in files if p.stem in digests]


@pytest.mark.parametrize("reaggregate", [False, True])
def test_nothing_in_mlflow_names_a_forgotten_client(
    federation: Federation, tracking: Tracking, reaggregate: bool
) -> None:
    publish_round(federation, 2, tracking, curves={"f1": {GONE: {1: 0.5, 2: 0.6}}})
    folder = tracking.folder or Path()
    assert len(named_in(folder)) > 5

    forget_client(federation, GONE, reaggregate=reaggregate)
    (line,) = lines(federation, tracking)
    report = rebuild(federation, tracking)

    assert "clients that were forgotten are still shown, see ledger entry" in line
    assert not line.endswith("--repair")
    assert report.forgotten == 1
    assert named_in(folder) == []
    assert not [*folder.rglob("f1.png")]
    assert lines(federation, tracking) == []


def test_models_made_again_take_the_place_of_the_old_ones(
    federation: Federation, tracking: Tracking
) -> None:
    plan = forget_client(federation, GONE, reaggregate=True)
    old = {m.model_digest for m in plan.influenced}
    assert old_weights(tracking, old)

    rebuild(federation, tracking)

    assert old_weights(tracking, old) == []
    for cohort in federation.state().cohorts.values():
        assert champion_of(federation, tracking, cohort.cohort_id) == cohort.model_digest


def test_counts_are_those_of_the_others(federation: Federation, tracking: Tracking) -> None:
    forget_client(federation, GONE)
    rebuild(federation, tracking)

    (run,) = [r for r in runs_of(federation, tracking, "2") if r.info.run_name == "round 002"]
    assert run.data.metrics["accepted"] == 3
    assert "p2 moved from c0 to c1" in run.data.tags["mlflow.note.content"]


def test_a_deleted_run_names_it_no_more(federation: Federation, tracking: Tracking) -> None:
    """MLflow keeps a run that was deleted in the browser until it is collected."""
    (run,) = [r for r in runs_of(federation, tracking, "2") if r.info.run_name == "round 002"]
    MlflowClient(tracking.uri).delete_run(run.info.run_id)
    forget_client(federation, GONE)

    rebuild(federation, tracking)

    assert named_in(tracking.folder or Path()) == []
    assert MlflowClient(tracking.uri).get_run(run.info.run_id).info.lifecycle_stage == "deleted"


@pytest.mark.parametrize("step", ["publish_rounds", "remove_versions", "drop_freed_text"])
def test_forgetting_that_was_stopped_is_finished(
    federation: Federation, tracking: Tracking, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = forget_client(federation, GONE, reaggregate=True)
    with monkeypatch.context() as patch:
        patch.setattr(f"tasks.tracking.forgetting.{step}", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rebuild(federation, tracking)

    rebuild(federation, tracking)

    assert lines(federation, tracking) == []
    assert old_weights(tracking, {m.model_digest for m in plan.influenced}) == []
    assert named_in(tracking.folder or Path()) == []


def test_what_is_carried_over_is_not_done_again(federation: Federation, tracking: Tracking) -> None:
    forget_client(federation, GONE)
    first, second = rebuild(federation, tracking), rebuild(federation, tracking)

    assert (first.forgotten, second.forgotten) == (1, 0)


def test_text_that_was_written_over_is_dropped(tmp_path: Path) -> None:
    place = resolve_tracking(tmp_path)
    path = place.database or Path()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("CREATE TABLE notes (text TEXT)")
        database.executemany("INSERT INTO notes VALUES (?)", [(GONE * 100,)] * 100)
        database.commit()
        database.execute("DELETE FROM notes")
        database.commit()
    assert GONE.encode() in path.read_bytes()

    drop_freed_text(place)

    assert GONE.encode() not in path.read_bytes()
