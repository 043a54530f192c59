"""One plant sends values that no mean survives, or claims no examples at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.errors import RoundHeldError
from clma.records import ClientStatus, Phase
from clma.round import RoundOutcome
from clma.rows import Gate, Verdict
from tests.acceptance.hostile.fleet import (
    CLIENTS,
    decided,
    found,
    moved,
    night,
    night_without,
    recorded,
    root_model,
    row_of,
    send,
    send_good,
    trained,
)

NOT_FINITE: list[tuple[str, Any, float, int]] = [
    ("head.weight", (2, 3), np.nan, 1),
    ("head.weight", (0, 0), np.inf, 1),
    ("head.bias", 1, -np.inf, 1),
    ("layer1.weight", ..., np.nan, 128),
    ("bn.running_var", 5, np.nan, 1),
]
DRIFTED = {"plant-a": 0, "plant-b": 0, "plant-d": 1}
"""Who drifts in round 2, and which way."""


def spoiled(name: str, index: Any, value: float) -> dict[str, Any]:
    """Return plant-c's update with values of one tensor replaced."""
    tensors = trained("plant-c", 1)
    tensors[name][index] = value
    return tensors


@pytest.fixture(scope="module")
def without_c(tmp_path_factory: pytest.TempPathFactory) -> RoundOutcome:
    return night_without(tmp_path_factory.mktemp("without"), "plant-c")


@pytest.mark.parametrize(("name", "index", "value", "n_values"), NOT_FINITE)
def test_a_value_that_is_not_finite_costs_its_own_vote_only(
    tmp_path: Path, without_c: RoundOutcome, name: str, index: Any, value: float, n_values: int
) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-c"])
    send(federation, "plant-c", spoiled(name, index, value))

    outcome = night(federation)

    assert decided(outcome) == decided(without_c)
    (row,) = recorded(federation, 1, "plant-c")
    assert (row.verdict, row.reason) == (Verdict.REJECTED, "NON_FINITE")
    assert f"'{name}' has {n_values} value" in str(row.detail)
    assert all(np.isfinite(v).all() for v in root_model(federation).values())


def night_of_drift(folder: Path, third: dict[str, Any] | None) -> RoundOutcome:
    """Return a second night in which three plants drift and plant-c sends `third`, flagged."""
    federation = found(folder, n_rounds=1)
    base = root_model(federation)
    for client_id, way in DRIFTED.items():
        send(federation, client_id, moved(base, way, 2.0), drift_flag=True)
    if third is not None:
        send(federation, "plant-c", third, drift_flag=True)
    send_good(federation, but=[*DRIFTED, "plant-c"])
    return night(federation)


def test_a_drifted_plant_that_is_not_finite_disturbs_no_cohort(tmp_path: Path) -> None:
    outcome = night_of_drift(tmp_path / "with", spoiled("head.weight", (2, 3), np.nan))

    assert decided(outcome) == decided(night_of_drift(tmp_path / "without", None))
    assert row_of(outcome, "plant-c").reason == "NON_FINITE"
    cohorts = {c: outcome.state.clients[c].cohort_id for c in (*DRIFTED, "plant-c")}
    assert cohorts == {"plant-a": "c1", "plant-b": "c1", "plant-d": "c2", "plant-c": "c0"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_costs_its_own_vote_only(
    tmp_path: Path, without_c: RoundOutcome, value: float
) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-c"])
    send(federation, "plant-c", loss=value)

    outcome = night(federation)

    assert decided(outcome) == decided(without_c)
    assert row_of(outcome, "plant-c").reason == "BAD_METADATA"


def test_zero_examples_weigh_nothing_and_are_listed(tmp_path: Path) -> None:
    federation = found(tmp_path / "with")
    send_good(federation, but=["plant-d"])
    send(federation, "plant-d", n_examples=0)

    outcome = night(federation)

    row = row_of(outcome, "plant-d")
    assert (row.verdict, row.reason) == (Verdict.ACCEPTED, "ZERO_EXAMPLES")
    without = night_without(tmp_path / "without", "plant-d")
    assert outcome.state.cohorts == without.state.cohorts
    assert outcome.state.clients["plant-d"].status is ClientStatus.ACTIVE


def test_a_night_without_a_single_example_is_held(tmp_path: Path) -> None:
    federation = found(tmp_path)
    before = federation.state().cohorts
    for client_id in CLIENTS:
        send(federation, client_id, n_examples=0)

    with pytest.raises(RoundHeldError, match=r"NO_WEIGHT, 8 updates have 0 examples together"):
        night(federation)

    state = federation.state()
    assert (state.round_num, state.phase, state.cohorts) == (2, Phase.OPEN, before)


def test_a_cohort_without_examples_keeps_its_model_and_the_others_publish(tmp_path: Path) -> None:
    federation = found(tmp_path, n_rounds=1)
    base = root_model(federation)
    for client_id in ("plant-a", "plant-b"):
        send(federation, client_id, moved(base, 0, 2.0), drift_flag=True)
    send_good(federation, but=["plant-a", "plant-b"])
    before = night(federation).state.cohorts
    for client_id in ("plant-a", "plant-b"):
        send(federation, client_id, n_examples=0)
    send_good(federation, but=["plant-a", "plant-b"])

    outcome = night(federation)

    rows = {row.cohort_id: row for row in outcome.decision.cohorts}
    assert (rows["c1"].model_digest, rows["c1"].gate) == (before["c1"].model_digest, Gate.HELD)
    assert rows["c1"].gate_detail == "NO_WEIGHT: 2 updates with 0 examples together"
    assert rows["c0"].gate is Gate.PROMOTED
