from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clma.client import read_parameters
from clma.records import SealedUpdate

pytest.importorskip("torch")


@pytest.mark.slow
def test_both_plants_are_accepted_and_only_the_drifted_one_says_so(
    play_days: Callable[..., list[SealedUpdate]],
) -> None:
    updates = play_days("torch_plant.py")

    assert {u.client_id: u.drift_flag for u in updates} == {"plant-01": False, "plant-02": True}


@pytest.mark.chaos  # a minute of interpreters that import torch
def test_a_personal_head_stays_at_the_plant(
    play_days: Callable[..., list[SealedUpdate]], tmp_path: Path
) -> None:
    updates = play_days("torch_plant.py", "--personal-head")

    assert {u.client_id: u.drift_flag for u in updates} == {"plant-01": False, "plant-02": True}
    sent = read_parameters(tmp_path / "plant-01.update.safetensors")
    kept = [read_parameters(tmp_path / f"plant-0{i}.head.safetensors") for i in (1, 2)]
    assert sorted(sent) == ["body.bias", "body.weight"]
    assert (kept[0]["head.bias"] != kept[1]["head.bias"]).any()


def test_help_names_the_commands(run_example: Callable[..., str]) -> None:
    assert "clma init" in run_example("torch_plant.py", "--help")
