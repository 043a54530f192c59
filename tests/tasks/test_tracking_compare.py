"""Whatever somebody does to MLflow is told, and what the line says mends it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from clma.ledger.federation import Federation
from tasks.tracking import Tracking, models, rebuild
from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.compare import comparison_with, pending_forgettings
from tasks.tracking.history import Forgetting
from tasks.tracking.names import TAG_FORGOTTEN
from tests.tasks.nights import pass_night, start
from tests.tasks.proxy import proxy_of

pytestmark = pytest.mark.slow

NAME = "compared"


class Shown:
    """What MLflow shows of the federation, and the means of somebody in its browser."""

    def __init__(self, federation: Federation, tracking: Tracking) -> None:
        self.federation, self.tracking = federation, tracking
        self.client = MlflowClient(tracking.uri, tracking.uri)

    @property
    def experiment_id(self) -> str:
        found = self.client.get_experiment_by_name(NAME)
        assert found is not None
        return str(found.experiment_id)

    def run(self, key: str) -> Run:
        query = f"tags.`clma.round_key` = '{NAME}/{key}'"
        return self.client.search_runs([self.experiment_id], query)[0]

    def version(self, round_num: int = 2) -> ModelVersion:
        query = f"tags.`clma.round_key` = '{NAME}/{round_num}/c0'"
        return min(self.client.search_model_versions(query), key=lambda v: int(v.version))

    def file(self, key: str, path: str) -> Path:
        return Path(self.run(key).info.artifact_uri.removeprefix("file://")) / path

    def weights(self, round_num: int = 2) -> Path:
        place = Path(str(self.version(round_num).source).removeprefix("file://"))
        (found,) = place.glob("artifacts/*.safetensors")
        return found

    def copy_of_version(self) -> None:
        old = self.version()
        self.client.create_model_version(old.name, old.source, old.run_id, tags=old.tags)

    def differences(self) -> list[str]:
        return [d.line for d in comparison_with(self.tracking.uri)(self.federation)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, tracking: Tracking) -> Iterator[Shown]:
    """Two published nights of one cohort; every test leaves them whole."""
    federation = start(tmp_path_factory.mktemp("compared"), NAME)
    with pytest.MonkeyPatch.context() as patch:
        # A hundred files of source with each version say nothing here.
        patch.setattr(models, "_code", lambda _: [])
        for _ in range(2):
            pass_night(federation)
        rebuild(federation, tracking)
        yield Shown(federation, tracking)


def elsewhere(shown: Shown) -> Path:
    """Return somebody's own folder that a version can be made of."""
    folder = (shown.tracking.folder or Path()) / "elsewhere"
    folder.mkdir(exist_ok=True)
    return folder


def wrong_weights(shown: Shown) -> None:
    data = shown.weights().read_bytes()
    shown.weights().write_bytes(data[:-1] + b"x")


def repeated_run(shown: Shown) -> None:
    old = shown.run("2/c0")
    shown.client.create_run(shown.experiment_id, old.info.start_time + 1, tags=old.data.tags)


def later_round(shown: Shown) -> None:
    tags = {"clma.round_key": f"{NAME}/9", "clma.published": "true"}
    shown.client.create_run(shown.experiment_id, tags=tags)


def other_model(shown: Shown) -> None:
    old = shown.version()
    tags = {**old.tags, "clma.model_digest": hashlib.sha256(b"").hexdigest()}
    shown.client.create_model_version(old.name, elsewhere(shown).as_uri(), tags=tags)


MISSING: dict[str, tuple[str, Callable[[Shown], object]]] = {
    "deleted experiment": (
        "the experiment was deleted in MLflow: compared",
        lambda s: s.client.delete_experiment(s.experiment_id),
    ),
    "deleted run": (
        "runs were deleted in MLflow: round 1",
        lambda s: s.client.delete_run(s.run("1").info.run_id),
    ),
    "deleted cohort run": (
        "runs were deleted in MLflow: cohort c0 of round 2",
        lambda s: s.client.delete_run(s.run("2/c0").info.run_id),
    ),
    "unfinished run": (
        "not published, or not to the end: round 2",
        lambda s: s.client.delete_tag(s.run("2").info.run_id, "clma.published"),
    ),
    "deleted registered model": (
        "models have no version in the registry: cohort c0 of round 1, cohort c0 of round 2",
        lambda s: s.client.delete_registered_model(f"{NAME}.c0"),
    ),
    "deleted version": (
        "models have no version in the registry: cohort c0 of round 1",
        lambda s: s.client.delete_model_version(f"{NAME}.c0", s.version(1).version),
    ),
    "deleted alias": (
        "the alias champion is missing or not on the served model: compared.c0",
        lambda s: s.client.delete_registered_model_alias(f"{NAME}.c0", "champion"),
    ),
    "moved alias": (
        "the alias champion is missing or not on the served model: compared.c0",
        lambda s: s.client.set_registered_model_alias(
            f"{NAME}.c0", "champion", s.version(1).version
        ),
    ),
}

OTHER: dict[str, tuple[str, Callable[[Shown], object]]] = {
    "run twice": ("runs are there more than once: cohort c0 of round 2", repeated_run),
    "unknown round": (
        "runs of rounds or cohorts that the ledger does not know: round 9",
        later_round,
    ),
    "other digest": (
        "runs do not show what the ledger decided: cohort c0 of round 2 (the model)",
        lambda s: s.client.set_tag(s.run("2/c0").info.run_id, "clma.model_digest", "0"),
    ),
    "changed table": (
        "files are missing or other than the ledger's: round 1 (tables/drift.parquet)",
        lambda s: s.file("1", "tables/drift.parquet").write_bytes(b"other"),
    ),
    "lost files": (
        "files are missing or other than the ledger's: round 2 (tables/drift.csv, federation.toml)",
        lambda s: [s.file("2", p).unlink() for p in ("tables/drift.csv", "federation.toml")],
    ),
    "version twice": (
        "versions are there more than once: compared.c0 version",
        Shown.copy_of_version,
    ),
    "unknown version": (
        "versions of models that the ledger does not know: compared.c0",
        other_model,
    ),
    "wrong weights": (
        "versions whose weights are missing or other than the ledger's",
        wrong_weights,
    ),
    "lost weights": (
        "versions whose weights are missing or other than the ledger's",
        lambda s: s.weights(1).unlink(),
    ),
    "deleted logged model": (
        "versions whose logged model was deleted",
        lambda s: s.client.delete_logged_model(str(s.version().source).split("/")[-2]),
    ),
}


@pytest.mark.parametrize("what", [*MISSING, *OTHER])
def test_what_was_done_to_mlflow_is_told_and_mended(shown: Shown, what: str) -> None:
    told, act = (MISSING | OTHER)[what]
    before = shown.differences()
    act(shown)

    lines = shown.differences()
    rebuild(shown.federation, shown.tracking, repair=lines[0].endswith("--repair"))

    assert before == []
    assert [line for line in lines if line.startswith(f"mlflow: {told}")]
    assert lines[0].endswith("--repair") == (what in OTHER)
    assert shown.differences() == []


def test_files_that_mlflow_did_not_make_are_not_removed(shown: Shown) -> None:
    other_model(shown)
    (elsewhere(shown) / "own").touch()

    rebuild(shown.federation, shown.tracking, repair=True)

    assert shown.differences() == []
    assert (elsewhere(shown) / "own").exists()


def test_a_run_made_anew_shows_its_model(shown: Shown) -> None:
    before = shown.run("2/c0")
    shown.client.delete_run(before.info.run_id)

    rebuild(shown.federation, shown.tracking)

    after = shown.run("2/c0")
    assert after.info.run_id != before.info.run_id
    (output,) = after.outputs.model_outputs
    assert output.model_id in str(shown.version().source)


def test_looking_changes_nothing(shown: Shown) -> None:
    before = (shown.tracking.database or Path()).read_bytes()

    shown.differences()

    assert (shown.tracking.database or Path()).read_bytes() == before


def test_a_store_that_was_never_made_is_not_made_by_looking(shown: Shown, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlruns/mlflow.db"

    (line,) = [d.line for d in comparison_with(uri)(shown.federation)]

    assert line.startswith("mlflow: the experiment is missing: compared; python -m flows.publish")
    assert line.endswith(f"--tracking-uri {uri}")
    assert list(tmp_path.iterdir()) == []


def test_another_federation_of_the_name_is_told(shown: Shown, tmp_path: Path) -> None:
    other = start(tmp_path, NAME, seed=7)
    pass_night(other)

    (line,) = [d.line for d in comparison_with(shown.tracking.uri)(other)]

    assert "experiment 'compared' holds another federation of that name" in line
    assert f"mlflow experiments rename --experiment-id {shown.experiment_id}" in line


@pytest.mark.parametrize("fault", ["refuse", "hang", "503"])
def test_a_server_that_does_not_answer_is_one_line(
    shown: Shown, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with proxy_of("http://127.0.0.1:9") as proxy:
        proxy.fault = fault
        (line,) = [d.line for d in comparison_with(proxy.address)(shown.federation)]

    assert "does not answer" in line
    assert "; see that it runs, then python -m flows.publish" in line
    assert "\n" not in line


def test_files_that_cannot_be_looked_at_are_one_line(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("no\ncredentials")

    monkeypatch.setattr(ArtifactFolder, "local", None)
    monkeypatch.setattr(LocalArtifactRepository, "list_artifacts", refuse)

    (line,) = shown.differences()

    assert "does not answer (no credentials); see that it runs" in line


@pytest.mark.parametrize("text", ["", "seven", "-3"])
def test_a_tag_that_somebody_wrote_into_is_no_number(text: str) -> None:
    history = SimpleNamespace(forgettings=[Forgetting(number=4, at=0, rounds=frozenset())])

    assert pending_forgettings(history, {TAG_FORGOTTEN: text}) == [4]


def test_a_database_server_that_is_away_is_not_waited_for(shown: Shown) -> None:
    uri = "postgresql://clma:secret@127.0.0.1:9/mlflow"

    (line,) = [d.line for d in comparison_with(uri)(shown.federation)]

    assert "postgresql://clma:***@127.0.0.1:9/mlflow does not answer at 127.0.0.1:9" in line
    assert "secret" not in line
