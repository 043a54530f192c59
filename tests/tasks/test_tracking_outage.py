"""A tracking server that goes away, on a real one: nothing half, nothing twice, no endless wait."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from clma.ledger.federation import Federation
from clma.ledger.store import file_digest
from deployments._servers import free_port, mlflow_server, running, wait_until_up
from tasks.tracking import (
    CHAMPION,
    Tracking,
    TrackingAwayError,
    missed_rounds,
    models,
    published_rounds,
    rebuild,
)
from tasks.tracking.history import History
from tests.tasks.nights import pass_night, start
from tests.tasks.proxy import Proxy, proxy_of
from tests.tasks.test_tracking_publish import runs_of, versions_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow server."""
    folder = tmp_path_factory.mktemp("mlflow")
    wanted = mlflow_server(f"sqlite:///{folder}/mlflow.db", folder, free_port(25000))
    with running(wanted) as started:
        wait_until_up([started])
        yield wanted.address


@pytest.fixture
def proxy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A relay in front of it; waits are a tenth of the real ones."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    # A hundred files of source with each version say nothing here.
    monkeypatch.setattr(models, "_code", lambda _: [])
    with proxy_of(server) as made:
        yield made


@pytest.fixture
def federation(tmp_path: Path, request: pytest.FixtureRequest) -> Federation:
    """One night of one cohort."""
    federation = start(tmp_path, re.sub(r"\W+", "-", request.node.name)[-60:])
    pass_night(federation)
    return federation


def assert_whole(federation: Federation, tracking: Tracking, versions: list[str]) -> None:
    """Every round is there once, and every alias leads to the whole model that is served."""
    assert published_rounds(federation, tracking) == History(federation).rounds
    assert versions_of(federation, tracking) == versions
    keys = [run.data.tags["clma.round_key"] for run in runs_of(federation, tracking)]
    assert len(keys) == len(set(keys))
    client = MlflowClient(tracking.uri, tracking.uri)
    for cohort in federation.state().cohorts.values():
        name = f"{federation.name}.{cohort.cohort_id}"
        version = client.get_model_version_by_alias(name, CHAMPION)
        folder = download_artifacts(version.source, tracking_uri=tracking.uri)
        (weights,) = Path(folder).rglob("*.safetensors")
        assert file_digest(weights) == cohort.model_digest


def aliases_of(federation: Federation, tracking: Tracking) -> list[str]:
    client = MlflowClient(tracking.uri, tracking.uri)
    models = client.search_registered_models(f"name LIKE '{federation.name}.%'")
    return [alias for model in models for alias in model.aliases]


@pytest.mark.parametrize(
    "fault",
    [
        *("hang", "cut"),
        *(pytest.param(f, marks=pytest.mark.chaos) for f in ("refuse", "503", "cut-answer")),
    ],
)
def test_a_server_that_was_away_gets_everything_once(
    federation: Federation, proxy: Proxy, server: str, fault: str
) -> None:
    behind, through = Tracking(server, None), Tracking(proxy.address, None)
    proxy.fault = fault

    with pytest.raises(TrackingAwayError, match=f"MLflow at {proxy.address} does not answer; .*"):
        rebuild(federation, through)
    assert aliases_of(federation, behind) == []
    proxy.fault = None
    rebuild(federation, through)

    assert_whole(federation, behind, ["1/c0"])


def test_an_outage_is_told_in_one_line_with_the_later_command(
    federation: Federation, proxy: Proxy
) -> None:
    proxy.fault = "503"

    with pytest.raises(TrackingAwayError) as failure:
        rebuild(federation, Tracking(proxy.address, None))

    text = str(failure.value)
    assert "python -m flows.publish publishes it" in text
    assert "\n" not in text
    assert len(text) < 600


@pytest.mark.chaos
def test_an_outage_between_two_rounds_keeps_the_first(
    federation: Federation, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_night(federation, drifted=("p2", "p3"))
    tracking = Tracking(proxy.address, None)
    register = MlflowClient.create_model_version

    def last_one(*args: object, **kwargs: object) -> object:
        version = register(*args, **kwargs)
        proxy.fault = "refuse" if version.name.endswith("c1") else None
        return version

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "create_model_version", last_one)
        with pytest.raises(TrackingAwayError):
            rebuild(federation, tracking)
    proxy.fault = None

    assert missed_rounds(federation, tracking) == (2,)
    rebuild(federation, tracking)
    assert_whole(federation, tracking, ["1/c0", "2/c0", "2/c1"])


def test_a_refusal_is_no_outage(
    federation: Federation, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may not write should read that, and not that nobody answers."""

    def forbid(*args: object, **kwargs: object) -> None:
        raise MlflowException("permission denied", error_code=7)

    monkeypatch.setattr(MlflowClient, "create_registered_model", forbid)
    with pytest.raises(MlflowException, match="permission denied"):
        rebuild(federation, Tracking(proxy.address, None))


def test_waits_are_short_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tasks.tracking.outage import shorten_waits

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    shorten_waits()

    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "600"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
