from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from clma.client import best_model, submit
from clma.client.pull import models_of_choice
from clma.config import DriftConfig
from clma.drift import DetectorState, make_detector
from clma.errors import InvalidUpdateError
from clma.ledger.federation import Federation
from clma.records import Cohort
from tests.clma.ledger.fleet import DUE, NOW, make_fleet, model, written

BOTH = ["weights", "examples", "flag", "choice", "loss_vector"]


def test_smallest_loss_wins_and_the_first_of_equal_ones() -> None:
    assert best_model([0.95, 0.85, 0.85]) == 1


def test_model_that_may_not_be_trained_is_not_chosen() -> None:
    assert best_model([0.5, 0.1, 0.4], [True, False, True]) == 2


@pytest.mark.parametrize("losses", [[], [float("nan")], [float("inf"), float("nan")]])
def test_no_finite_loss_is_no_choice(losses: list[float]) -> None:
    with pytest.raises(InvalidUpdateError, match="wanted one to train"):
        best_model(losses)


@pytest.mark.parametrize(("delta", "drifts"), [(0.5, True), (0.6, False)])
def test_client_drifts_if_even_its_best_model_is_worse_by_delta(delta: float, drifts: bool) -> None:
    """FedDrift's test on the losses .95 and .85 after a best loss of .30."""
    detector = make_detector(DriftConfig(detector="loss_threshold", gamma=delta))
    state, _ = detector.observe(DetectorState(), 0.30, standard_error=0.0)

    _, reading = detector.observe(state, min(0.95, 0.85), standard_error=0.0)

    assert reading.drift_detected is drifts


def choosing(tmp_path: Path, share: list[str]) -> Federation:
    federation = make_fleet(
        tmp_path / "store", tmp_path, preset="ifca", privacy={"share": share}, opened=False
    )
    state = federation.state()
    digest = federation.add_model(written(tmp_path / "two", model(3.0)).read_bytes())
    cohorts = {**state.cohorts, "c1": Cohort("c1", None, 0, digest)}
    federation.open_round(now=NOW, moves=dataclasses.replace(state, cohorts=cohorts))
    return federation


def test_update_of_a_model_of_choice_is_taken_with_its_losses(tmp_path: Path) -> None:
    federation = choosing(tmp_path, BOTH)
    models = models_of_choice(federation, "fleet", "p0")
    losses = {models["c0"]: 0.9, models["c1"]: 0.2}

    submit(
        federation,
        "fleet",
        "p0",
        tensors=written(tmp_path / "t", model(3.5)),
        n_examples=5,
        drift_flag=False,
        base_digest=models["c1"],
        losses=losses,
    )
    (update,) = federation.seal_round(now=DUE).updates

    assert (update.base_digest, update.losses) == (models["c1"], losses)


def test_losses_stay_at_the_plant_where_they_are_not_shared(tmp_path: Path) -> None:
    federation = choosing(tmp_path, [s for s in BOTH if s != "loss_vector"])
    digest = models_of_choice(federation, "fleet", "p0")["c1"]

    receipt = submit(
        federation,
        "fleet",
        "p0",
        tensors=written(tmp_path / "t", model(3.5)),
        n_examples=5,
        drift_flag=False,
        losses={digest: 0.2},
    )

    assert "the losses were not sent" in receipt.notes[0]
    assert federation.seal_round(now=DUE).updates[0].losses == {}


def test_update_of_a_model_that_was_not_offered_is_stale(tmp_path: Path) -> None:
    federation = choosing(tmp_path, BOTH)

    with pytest.raises(InvalidUpdateError, match=r"was sent \w+ and 1 more"):
        submit(
            federation,
            "fleet",
            "p0",
            tensors=written(tmp_path / "t", model(3.5)),
            n_examples=5,
            drift_flag=False,
            base_digest="ab" * 32,
        )
