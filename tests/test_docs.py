"""The documents say what is so: their commands run, their tables are the code's."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from clma.client import submit
from clma.config import AggregationConfig
from clma.ledger.federation import Federation
from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.records import Phase
from clma.updates.reasons import EXPLANATIONS

ROOT = Path(__file__).parents[1]


def block(name: str) -> str:
    """Return the code between the README's marks of a name."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    marked = re.search(rf"<!-- {name}:begin -->\n```\w+\n(.*?)```\n<!-- {name}:end -->", text, re.S)
    assert marked is not None, name
    return marked[1]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and the names of three plants, as the README assumes."""
    monkeypatch.chdir(tmp_path)
    base = serialize_tensors({"head.weight": np.zeros((2, 3), np.float32)})
    (tmp_path / "base.safetensors").write_bytes(base)
    line = shell(block("keygen")).strip()
    (tmp_path / "plants.txt").write_text(f"{line}\nplant-02\nplant-03\n")
    return tmp_path


def shell(command: str) -> str:
    """Run one of the README's commands with this Python; return what it prints."""
    words = command.split()
    start = {
        "clma": ["-m", "clma.cli"],
        "python": [],
    }[words[0]]
    done = subprocess.run(
        [sys.executable, *start, *words[1:]], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def test_the_plants_ten_lines_send_an_update(desk: Path) -> None:
    init, status, _ = block("server").splitlines()
    shell(init)
    shell(status)

    def load(path: Path) -> np.ndarray:
        with TensorFile(path) as file:
            return np.array(file.read("head.weight"))

    def save(weights: np.ndarray, path: Path) -> None:
        path.write_bytes(serialize_tensors({"head.weight": weights}))

    names = {
        "load": load,
        "save": save,
        "losses_of": lambda _: [0.5, 0.6],
        "train": lambda weights: weights + 1,
    }
    exec(compile(block("plant"), "README.md", "exec"), names)  # noqa: S102 - our own README

    sealed = Federation.open(desk / "fleet").seal_round(now=dt.datetime.now(dt.UTC), force=True)
    assert [u.client_id for u in sealed.updates] == ["plant-01"]


@pytest.mark.slow
def test_the_servers_lines_run_a_night(desk: Path, prefect_api: str) -> None:
    init, status, nightly = block("server").splitlines()
    shell(init)
    federation = Federation.open(desk / "fleet")
    _send_one(federation, desk)

    shell(f"{nightly} --tracking-uri sqlite:///{desk}/mlruns/mlflow.db")
    shell(status)

    assert federation.state_at_commit(1).phase is Phase.COMMITTED
    assert federation.state().round_num == 2


def test_page_of_reasons_is_the_closed_list() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M))
    assert rows == {reason.value: text for reason, text in EXPLANATIONS.items()}


def test_page_of_aggregation_rules_is_the_closed_list() -> None:
    page = (ROOT / "docs" / "aggregation.md").read_text(encoding="utf-8")
    rules, optimizers = (
        re.findall(r"^\| `(\w+)` \|", part, re.M) for part in page.split("## Server optimisers")
    )
    fields = AggregationConfig.model_fields
    assert rules == list(get_args(fields["method"].annotation))
    assert optimizers == list(get_args(fields["server_optimizer"].annotation))


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def _send_one(federation: Federation, folder: Path) -> None:
    update = folder / "update.safetensors"
    update.write_bytes(serialize_tensors({"head.weight": np.ones((2, 3), np.float32)}))
    submit(
        federation,
        "north",
        "plant-01",
        tensors=update,
        n_examples=9,
        drift_flag=False,
        key=folder / "plant-01.key",
    )
