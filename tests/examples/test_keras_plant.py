from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from clma.records import SealedUpdate

os.environ.setdefault("KERAS_BACKEND", "torch")
pytest.importorskip("keras", reason="Keras is not installed: make test-keras")


@pytest.mark.slow
def test_both_plants_are_accepted_and_only_the_drifted_one_says_so(
    play_days: Callable[..., list[SealedUpdate]],
) -> None:
    updates = play_days("keras_plant.py")

    assert {u.client_id: u.drift_flag for u in updates} == {"plant-01": False, "plant-02": True}


def test_help_names_the_commands(run_example: Callable[..., str]) -> None:
    assert "clma init" in run_example("keras_plant.py", "--help")
