"""The documents say what is so: their commands run, their tables are the code's."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from clma.client import submit
from clma.config import AggregationConfig
from clma.extra_round import look_at_requests
from clma.ledger.federation import Federation
from clma.onboarding.plan import plan_cohorts
from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.records import Phase
from clma.report.comparison_tables import RESULTS
from clma.simulation.cells import Cell
from clma.simulation.run_cell import run_cell
from clma.updates.reasons import EXPLANATIONS
from deployments._gateway_guard import GatewayLimits

ROOT = Path(__file__).parents[1]
PROBE = ' --preset clma-probe --set privacy.share=["weights","flag","examples","choice"]'


def block(name: str, page: str = "README.md") -> str:
    """Return the code between a page's marks of a name."""
    text = (ROOT / page).read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    ("name", "page", "settings"),
    [
        ("plant", "README.md", ""),
        ("plant", "README.md", PROBE),
        ("answers", "docs/levels.md", ""),
        ("answers", "docs/levels.md", PROBE),
    ],
)
def test_the_plants_ten_lines_send_an_update(
    desk: Path, name: str, page: str, settings: str
) -> None:
    init, status, _ = block("server").splitlines()
    shell(init + settings)
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
    exec(compile(block(name, page), page, "exec"), names)  # noqa: S102 - our own page

    sealed = Federation.open(desk / "fleet").seal_round(now=dt.datetime.now(dt.UTC), force=True)
    assert [u.client_id for u in sealed.updates] == ["plant-01"]


def test_the_monitors_lines_ask_for_a_round(desk: Path) -> None:
    init, _, _ = block("server").splitlines()
    shell(init)
    weights = serialize_tensors({"head.weight": np.ones((2, 3), np.float32)})
    names = {
        "stream": [0.1, 0.1, 0.9, 0.9, 0.9, 0.9],
        "entropy_of": float,
        "train": lambda _, out: out.write_bytes(weights),
    }

    exec(compile(block("monitor", "docs/monitor.md"), "page", "exec"), names)  # noqa: S102 - our own page

    found = look_at_requests(Federation.open(desk / "fleet"), now=dt.datetime.now(dt.UTC))
    assert found.asked == ("plant-01",)


def test_limits_of_the_gateways_page_are_the_code_s() -> None:
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    limits = GatewayLimits()
    assert f"{limits.requests_per_minute:g} requests a minute, {limits.burst} at once" in page
    assert f"{limits.n_uploads} of all plants" in page
    assert f"{limits.silence_s:g} s without a byte" in page
    assert f"within {limits.window_s:g} s" in page


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


@pytest.mark.slow
def test_the_scenario_of_ones_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_fleet.py").write_text(block("own", "docs/comparing.md"))
    monkeypatch.syspath_prepend(tmp_path)
    _record_pumps(tmp_path / "pumps.parquet")

    result = run_cell(Cell("my_fleet:high_load", "clma", 0, n_rounds=1), tmp_path)

    assert len(result.rounds) == 10
    assert 0 < (result.row.final_drifted_f1 or 0) <= 1


def test_the_ranges_of_ones_own_sensors_make_an_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranges.toml").write_text(block("ranges", "docs/encoders.md"))
    names = {"Path": Path, "windows": np.ones((3, 2, 64))}

    exec(compile(block("sensors", "docs/encoders.md"), "page", "exec"), names)  # noqa: S102 - our own page

    assert np.shape(names["embeddings"]) == (3, 16)


@pytest.mark.parametrize("way", ["sign", "python"])
def test_a_plants_description_places_it(desk: Path, way: str) -> None:
    shell(block("init", "docs/onboarding.md").strip())
    (desk / "ranges.toml").write_text(block("ranges", "docs/encoders.md"))
    np.save(desk / "windows.npy", np.ones((12, 2, 64)))
    np.save(desk / "labels.npy", np.arange(12) % 2)

    if way == "sign":
        shell(block("sign", "docs/onboarding.md").strip())
    else:
        exec(compile(block("python", "docs/onboarding.md"), "page", "exec"), {})  # noqa: S102 - our own page

    collected = plan_cohorts(Federation.open(desk / "fleet")).collected
    assert (list(collected.found), collected.missing) == (["plant-01"], ("plant-02", "plant-03"))


def test_columns_of_a_comparison_are_the_tables() -> None:
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    lines = page.partition("Columns of `results.parquet`")[2].partition("The summary's")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", lines, re.M)))
    assert ["scenario", "method", "seed", *named] == RESULTS.names


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


def _record_pumps(path: Path) -> None:
    """Write twenty blocks of each condition and class."""
    rng = np.random.default_rng(0)
    n_rows = 20 * 60
    frame = pd.DataFrame(
        [
            (day, second, condition, fault)
            for day, condition in enumerate(("normal-load", "high-load"))
            for second, fault in enumerate(np.repeat(("normal", "fouling", "leak"), n_rows))
        ],
        columns=["day", "second", "set_point", "fault"],
    )
    for variable in ("flow", "pressure", "temperature"):
        frame[variable] = rng.standard_normal(len(frame))
    frame.to_parquet(path)


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
