"""The service units and the image start what there is, as nobody in particular."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deployments").glob("clma-*.service"))


def unit(path: Path) -> configparser.SectionProxy:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read(path)
    return read["Service"]


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.stem)
def test_unit_starts_a_command_that_knows_its_options(path: Path) -> None:
    command = unit(path)["ExecStart"]
    module = re.search(r"-m (\S+)", command)
    assert module is not None

    shown = subprocess.run(
        [sys.executable, "-m", module[1], "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "", "PYTHONPATH": str(ROOT)},
    )

    assert all(option in shown.stdout for option in re.findall(r" (--\S+)", command))
    assert "Example: python -m" in shown.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.stem)
def test_unit_does_not_run_as_root(path: Path) -> None:
    assert unit(path)["User"] not in {"", "root", "0"}


def test_gateways_unit_may_write_what_plants_send_only() -> None:
    service = unit(ROOT / "deployments" / "clma-gateway.service")
    places = service["ReadWritePaths"].split()
    assert service["ProtectSystem"] == "strict"
    assert {Path(place).name for place in places} == {"inbox", "requests"}
    assert "--host" not in service["ExecStart"]


def test_image_runs_the_gateway_as_nobody_in_particular() -> None:
    text = (ROOT / "deployments" / "gateway.Containerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (.+) \S+$", text, re.M)
    assert re.findall(r"^USER (\d+)$", text, re.M) == ["10001"]
    assert '["python", "-m", "deployments.gateway"]' in text
    assert all((ROOT / name).exists() for line in copied for name in line.split())
