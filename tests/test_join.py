"""A plant's page is played as it is printed: key, registration, ten lines, commands."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.client import write_parameters
from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.records import SealedUpdate
from tests.test_docs import ROOT, block

PAGE = "docs/join.md"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the `clma` command in the path."""
    command = tmp_path / "bin" / "clma"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m clma.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def play(name: str) -> str:
    """Run a block of shell as it is printed; return what it prints."""
    shell = shutil.which("sh")
    if shell is None:
        pytest.skip("no POSIX shell")
    done = subprocess.run(
        [shell, "-e", "-c", block(name, PAGE)], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def join(parameters: dict[str, np.ndarray]) -> Federation:
    """Make the page's federation, let the plant join, and open the first round."""
    write_parameters(Path("base.safetensors"), parameters)
    federation = Federation.create("fleet", preset_config("north"), Path("base.safetensors"))
    play("key")
    play("register")
    federation.open_round(now=dt.datetime.now(dt.UTC))
    return federation


def seal(federation: Federation) -> SealedUpdate:
    """Close the round; return the only update that was taken."""
    (update,) = federation.seal_round(now=dt.datetime.now(dt.UTC), force=True).updates
    return update


def run_night(code: str, **names: Any) -> None:
    exec(compile(code, PAGE, "exec"), names)  # noqa: S102 - our own page


def test_the_ten_lines_send_what_a_torch_module_learnt(desk: Path) -> None:
    torch = pytest.importorskip("torch")
    from clma.adapters.torch import parameters_of

    module = torch.nn.Linear(2, 1)
    federation = join(parameters_of(module))

    def train(model: Any) -> None:
        with torch.no_grad():
            model.weight.fill_(7.0)

    run_night(block("night", PAGE), model=module, losses_of=lambda _: [0.5, 0.6], train=train)

    update = seal(federation)
    assert (update.client_id, update.n_examples, update.drift_flag) == ("plant-11", 96, False)
    with federation.open_tensors(update.tensors) as file:
        assert np.array_equal(file.read("weight"), [[7.0, 7.0]])


def test_with_scikit_learn_one_import_is_another(desk: Path) -> None:
    pytest.importorskip("sklearn")
    from sklearn.linear_model import SGDClassifier

    from clma.adapters.sklearn import losses_of, parameters_of, prepare

    model = prepare(SGDClassifier(loss="log_loss"), n_features=2, classes=[0, 1])
    federation = join(parameters_of(model))
    samples, labels = np.eye(2), np.array([0, 1])

    run_night(
        block("night", PAGE).replace("clma.adapters.torch", "clma.adapters.sklearn"),
        model=model,
        losses_of=lambda trained: losses_of(trained, samples, labels),
        train=lambda trained: trained.partial_fit(samples, labels),
    )

    with federation.open_tensors(seal(federation).tensors) as file:
        assert np.array_equal(file.read("linear.coef"), model.coef_)


def test_the_commands_send_an_update_and_show_where_the_plant_stands(desk: Path) -> None:
    federation = join({"w": np.ones(3, np.float32)})

    said = play("commands")

    assert re.search("plant-11: .* round 1 is open, update [0-9a-f]{12} is sent", said)
    assert seal(federation).client_id == "plant-11"


def test_the_ten_lines_are_not_many_more() -> None:
    statements = [line for line in block("night", PAGE).splitlines() if line[:1].strip(" )")]
    assert len(statements) <= 10
