"""The same through a real MLflow server, whose files are looked at by request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clma.forget import forget_client
from clma.ledger.federation import Federation
from deployments._servers import free_port, mlflow_server, running, wait_until_up
from tasks.tracking import Tracking, models, rebuild
from tasks.tracking.compare import comparison_with
from tests.tasks.nights import pass_night, start
from tests.tasks.test_tracking_publish import champion_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps everything."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(scope="module")
def tracking(folder: Path) -> Iterator[Tracking]:
    wanted = mlflow_server(f"sqlite:///{folder}/mlflow.db", folder, free_port(26000))
    with running(wanted) as started:
        wait_until_up([started])
        yield Tracking(wanted.address, None)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, tracking: Tracking) -> Federation:
    """One published night."""
    made = start(tmp_path_factory.mktemp("remote"), "remote")
    pass_night(made, spread=0.001)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_code", lambda _: [])
        rebuild(made, tracking)
    return made


def lines(federation: Federation, tracking: Tracking) -> list[str]:
    return [d.line for d in comparison_with(tracking.uri)(federation)]


def weights_in(folder: Path) -> list[Path]:
    return sorted((folder / "artifacts").rglob("*.safetensors"))


def test_changed_files_are_told_and_mended(
    federation: Federation, tracking: Tracking, folder: Path
) -> None:
    before = lines(federation, tracking)
    (weights,) = weights_in(folder)
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    next((folder / "artifacts").rglob("drift.parquet")).unlink()

    told = lines(federation, tracking)
    report = rebuild(federation, tracking, repair=True)

    assert before == []
    assert [line.partition(":")[2].split(":")[0] for line in told] == [
        " files are missing or other than the ledger's",
        " versions whose weights are missing or other than the ledger's",
    ]
    assert report.mended == 2
    assert lines(federation, tracking) == []


def test_a_forgotten_client_is_gone_from_the_server(
    federation: Federation, tracking: Tracking, folder: Path
) -> None:
    forget_client(federation, "p1", reaggregate=True)

    rebuild(federation, tracking)

    served = federation.state().cohorts["c0"].model_digest
    assert [path.stem for path in weights_in(folder)] == [served]
    assert champion_of(federation, tracking, "c0") == served
    assert not [p for p in (folder / "artifacts").rglob("*.csv") if b"p1" in p.read_bytes()]
    assert lines(federation, tracking) == []
