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

from clma.adapters.torch import load_parameters
from clma.errors import DamagedStoreError, InvalidConfigError
from clma.simulation.cnn import cnn1d
from tasks.tracking import Tracking, rebuild
from tasks.tracking.models import _code, _requirements
from tests.tasks.nights import NETWORK, pass_night, start

FORBID_PICKLE = """
import pickle, sys
import cloudpickle, mlflow, mlflow.pyfunc, numpy as np, torch

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
batch = np.linspace(-1, 1, 4 * 2 * 8).reshape(4, 2, 8).astype(np.float32)
print(json.dumps(model.predict(batch).tolist()))
"""


def load_elsewhere(tracking: Tracking, uri: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Load and predict in a process that has neither the checkout nor a pickle."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"MLFLOW_TRACKING_URI": tracking.uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment |= {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", FORBID_PICKLE + PREDICT, uri],
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
    digest = federation.state().cohorts["c0"].model_digest
    with federation.open_tensors(federation.model_ref(digest)) as file:
        load_parameters(module, {s.name: file.read(s.name) for s in file.specs})
    batch = np.random.default_rng(0).standard_normal((5, 2, 8)).astype(np.float32)

    served = mlflow.pyfunc.load_model(source_of(tracking, "same-network.c0")).predict(batch)

    with torch.inference_mode():
        expected = torch.softmax(module(torch.from_numpy(batch)), dim=1).numpy()
    np.testing.assert_array_equal(served, expected)


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
