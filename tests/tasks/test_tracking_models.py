from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from clma.adapters.factory import load_factory
from clma.adapters.sklearn import load_parameters as load_sklearn_parameters
from clma.adapters.sklearn import parameters_of as sklearn_parameters_of
from clma.adapters.torch import load_parameters
from clma.client.model_file import read_parameters
from clma.errors import DamagedStoreError, InvalidConfigError
from clma.ledger.federation import Federation
from clma.simulation.cnn import cnn1d
from tasks.tracking import Tracking, rebuild
from tasks.tracking.models import _code, _requirements
from tests.tasks.nights import NETWORK, pass_night, start

FORBID_PICKLE = """
import pickle, sys
# joblib derives from the unpickler when it is imported, and unpickles nothing by that.
import cloudpickle, joblib, mlflow, mlflow.pyfunc, numpy as np, torch

def refuse(*args, **kwargs):
    raise AssertionError("something was unpickled")

for module in (pickle, cloudpickle):
    module.load = module.loads = refuse
pickle.Unpickler = pickle._Unpickler = refuse
torch.load = refuse
"""

PREDICT = """
import json
model = mlflow.pyfunc.load_model(sys.argv[1])
shape = json.loads(sys.argv[2])
batch = np.linspace(-1, 1, np.prod(shape)).reshape(shape).astype(np.float32)
print(json.dumps(model.predict(batch).tolist()))
"""


def batch_of(*shape: int) -> np.ndarray:
    """Return the batch that PREDICT makes."""
    return np.linspace(-1, 1, np.prod(shape)).reshape(shape).astype(np.float32)


def served_weights(federation: Federation) -> dict[str, np.ndarray]:
    digest = federation.state().cohorts["c0"].model_digest
    return read_parameters(federation.model_path(digest))


def load_elsewhere(
    tracking: Tracking, uri: str, folder: Path, shape: tuple[int, ...] = (4, 2, 8)
) -> subprocess.CompletedProcess[str]:
    """Load and predict in a process that has neither the checkout nor a pickle."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"MLFLOW_TRACKING_URI": tracking.uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment |= {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", FORBID_PICKLE + PREDICT, uri, json.dumps(shape)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def source_of(tracking: Tracking, name: str) -> str:
    version = MlflowClient(tracking.uri, tracking.uri).get_model_version_by_alias(name, "champion")
    return str(version.source)


def files_of(tracking: Tracking, name: str) -> list[str]:
    place = Path(source_of(tracking, name).removeprefix("file://"))
    return [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a version puts the code that came with it on the path."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.slow
def test_champion_predicts_elsewhere_and_nothing_is_unpickled(
    tmp_path: Path, tracking: Tracking
) -> None:
    federation = start(tmp_path, "predicts")
    pass_night(federation)
    rebuild(federation, tracking)
    done = load_elsewhere(tracking, "models:/predicts.c0@champion", tmp_path)

    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    probabilities = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert probabilities.shape == (4, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    names = files_of(tracking, "predicts.c0")
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".pt", ".pth"))]


@pytest.mark.slow
def test_weights_without_a_factory_say_how_to_give_one(tmp_path: Path, tracking: Tracking) -> None:
    federation = start(tmp_path, "weights-only", model_factory="", model_arguments={})
    pass_night(federation)
    rebuild(federation, tracking)
    loaded = mlflow.pyfunc.load_model(source_of(tracking, "weights-only.c0"))

    with pytest.raises(InvalidConfigError, match=r"--set model_factory=package.module:factory"):
        loaded.predict(np.zeros((1, 2, 8), np.float32))
    digest = federation.state().cohorts["c0"].model_digest
    assert f"artifacts/{digest}.safetensors" in files_of(tracking, "weights-only.c0")


@pytest.mark.slow
def test_weights_that_were_changed_are_not_served(tmp_path: Path, tracking: Tracking) -> None:
    federation = start(tmp_path, "changed-weights")
    pass_night(federation)
    rebuild(federation, tracking)
    source = source_of(tracking, "changed-weights.c0")
    (weights,) = (Path(source.removeprefix("file://")) / "artifacts").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")

    with pytest.raises(DamagedStoreError, match="was published"):
        mlflow.pyfunc.load_model(source)


@pytest.mark.slow
def test_served_probabilities_are_those_of_the_network(tmp_path: Path, tracking: Tracking) -> None:
    federation = start(tmp_path, "same-network")
    pass_night(federation)
    rebuild(federation, tracking)
    module = cnn1d(**NETWORK).eval()
    load_parameters(module, served_weights(federation))
    batch = np.random.default_rng(0).standard_normal((5, 2, 8)).astype(np.float32)

    served = mlflow.pyfunc.load_model(source_of(tracking, "same-network.c0")).predict(batch)

    with torch.inference_mode():
        expected = torch.softmax(module(torch.from_numpy(batch)), dim=1).numpy()
    np.testing.assert_array_equal(served, expected)


FACTORY = """
from sklearn.linear_model import SGDClassifier

from clma.adapters.sklearn import prepare


def three_classes(n_features):
    return prepare(SGDClassifier(loss="log_loss"), n_features=n_features, classes=[0, 1, 2])
"""


@pytest.mark.slow
def test_cohorts_of_scikit_learn_models_are_published_and_predict(
    tmp_path: Path, tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plant_models.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    model = load_factory("plant_models:three_classes")(n_features=2)
    federation = start(
        tmp_path / "fleet",
        "linear",
        base=sklearn_parameters_of(model),
        model_factory="plant_models:three_classes",
        model_arguments={"n_features": 2},
        model_adapter="sklearn",
    )
    pass_night(federation)
    rebuild(federation, tracking)

    done = load_elsewhere(tracking, "models:/linear.c0@champion", tmp_path / "fleet", (5, 2))

    assert done.returncode == 0, done.stderr
    served = np.array(json.loads(done.stdout.splitlines()[-1]))
    load_sklearn_parameters(model, served_weights(federation))
    np.testing.assert_allclose(served, model.predict_proba(batch_of(5, 2)), rtol=1e-6)


@pytest.mark.parametrize(("adapter", "package"), [("sklearn", "scikit-learn"), ("keras", "keras")])
def test_requirements_name_the_framework(adapter: str, package: str) -> None:
    requirements = _requirements("clma.simulation.cnn:cnn1d", adapter)  # type: ignore[arg-type]

    assert [r.partition("==")[0] for r in requirements] == ["mlflow", "numpy", package]


def test_requirements_are_pinned_and_clma_comes_along() -> None:
    requirements = _requirements("clma.simulation.cnn:cnn1d")

    assert [r.partition("==")[0] for r in requirements] == ["mlflow", "numpy", "torch"]
    assert all("+" not in r for r in requirements)
    assert [Path(folder).name for folder in _code("clma.simulation.cnn:cnn1d")] == ["clma"]


def test_weights_alone_need_no_torch() -> None:
    assert [r.partition("==")[0] for r in _requirements("")] == ["mlflow", "numpy"]


def test_code_of_a_factory_that_nobody_installs_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pump_networks.py").write_text("def network(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    folders = [Path(folder).name for folder in _code("pump_networks:network")]
    assert folders == ["clma", "pump_networks.py"]


def test_a_factory_that_is_nowhere_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="no module 'no_such_networks'"):
        _code("no_such_networks:network")
