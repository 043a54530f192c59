from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.records import SealedUpdate

ROOT = Path(__file__).parents[2]
IDS = ("plant-01", "plant-02")


@pytest.fixture
def run_example(tmp_path: Path) -> Callable[..., str]:
    """Run an example's script as its text says; return what it prints."""

    def run(name: str, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / name), *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def found(tmp_path: Path) -> Callable[[], Federation]:
    """Make a federation of two plants from the example's model and open its first round."""

    def make() -> Federation:
        config = preset_config("north", identity={"updates": "unsigned"})
        base = tmp_path / "base.safetensors"
        federation = Federation.create(tmp_path / "fleet", config, base, IDS)
        federation.open_round(now=dt.datetime.now(dt.UTC))
        return federation

    return make


@pytest.fixture
def play_days(
    run_example: Callable[..., str], found: Callable[[], Federation]
) -> Callable[..., list[SealedUpdate]]:
    """Let both plants send one day each, the second one twice with a drift between its days."""

    def play(script: str, *options: str) -> list[SealedUpdate]:
        def send(*words: str) -> None:
            run_example(script, "--store", "fleet", *options, "--client", *words)

        run_example(script, *options, "--base", "base.safetensors")
        federation = found()
        for client_id in IDS:
            send(client_id)
        federation.seal_round(now=dt.datetime.now(dt.UTC), force=True)
        federation.hold_round("the test looks at plants only")
        federation.open_round(now=dt.datetime.now(dt.UTC))
        send("plant-01")
        send("plant-02", "--drifted")
        return list(federation.seal_round(now=dt.datetime.now(dt.UTC), force=True).updates)

    return play
