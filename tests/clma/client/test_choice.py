from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from clma.client import DriftReporter, ModelOfChoice, PulledModel, best_model, choose, submit
from clma.client.pull import models_of_choice
from clma.config import ChoiceRule, DriftConfig
from clma.drift import DetectorState, make_detector
from clma.errors import InvalidUpdateError
from clma.ledger.federation import Federation
from clma.records import Cohort
from tests.clma.ledger.fleet import DUE, NOW, make_fleet, model, written

RULE = ChoiceRule(ratio=0.5, z_score=3.0)
OWN = [1.0, 1.2, 0.9, 1.1]
BOTH = ["weights", "examples", "flag", "choice", "loss_vector"]


def test_smallest_loss_wins_and_the_first_of_equal_ones() -> None:
    assert best_model([0.95, 0.85, 0.85]) == 1


def test_model_that_may_not_be_trained_is_not_chosen() -> None:
    assert best_model([0.5, 0.1, 0.4], [True, False, True]) == 2


@pytest.mark.parametrize("losses", [[], [float("nan")], [float("inf"), float("nan")]])
def test_no_finite_loss_is_no_choice(losses: list[float]) -> None:
    with pytest.raises(InvalidUpdateError, match="wanted one to train"):
        best_model(losses)


@pytest.mark.parametrize(
    ("other", "best"),
    [
        ([0.4, 0.5, 0.3, 0.4], 1),
        ([0.6, 0.7, 0.5, 0.6], 0),  # better on every sample, but not by half
        ([0.0, 0.0, 0.0, 1.9], 0),  # less than half, but for one sample
    ],
)
def test_another_model_has_to_be_clearly_better(other: list[float], best: int) -> None:
    assert best_model([OWN, other], rule=RULE) == best


def test_of_equally_good_models_the_first_is_taken() -> None:
    """Larger cohorts come first; a smaller one's model has to be clearly better than theirs."""
    good, slightly_better = [0.4, 0.5, 0.3, 0.4], [0.3, 0.4, 0.3, 0.3]
    assert best_model([OWN, good, slightly_better], rule=RULE) == 1
    assert best_model([OWN, good, [0.1, 0.1, 0.1, 0.1]], rule=RULE) == 2


@pytest.mark.parametrize("unit", [0.1, 10.0])
def test_unit_of_the_loss_changes_no_choice(unit: float) -> None:
    losses = [np.array(OWN), np.array([0.4, 0.5, 0.3, 0.4]), np.array([0.3, 0.5, 0.3, 0.4])]
    assert best_model([unit * loss for loss in losses], rule=RULE) == best_model(losses, rule=RULE)


def test_models_are_compared_on_the_same_samples() -> None:
    with pytest.raises(InvalidUpdateError, match="4 and 2 losses, wanted the same samples"):
        best_model([OWN, [0.1, 0.1]], rule=RULE)


def pulled_models(tmp_path: Path, *, asked: str | None = None, takes: bool = False) -> PulledModel:
    """Return own model c1, and c0 to choose; their files are only named."""
    models = tuple(ModelOfChoice(c, f"digest-{c}", tmp_path / c) for c in ("c1", "c0"))
    return PulledModel(
        federation="fleet",
        client_id="p0",
        round_num=5,
        cohort_id="c1",
        base_digest="digest-c1",
        path=tmp_path / "c1",
        confirm_cohort=asked,
        confirm_path=None if asked is None else tmp_path / asked,
        confirm_takes=takes,
        choice=models,
        choice_rule=RULE,
    )


def chosen(pulled: PulledModel, other: list[float]) -> tuple[str, bool | None]:
    losses = {"c1": np.array(OWN), "c0": np.array(other)}
    choice = choose(pulled, lambda path: losses[path.name], DriftReporter(DriftConfig()))
    return choice.digest, choice.confirm


def test_clearly_better_model_is_trained_and_named(tmp_path: Path) -> None:
    assert chosen(pulled_models(tmp_path), [0.1, 0.2, 0.1, 0.1]) == ("digest-c0", None)


@pytest.mark.parametrize(("takes", "trained"), [(False, "digest-c1"), (True, "digest-c0")])
def test_model_that_is_not_bad_is_trained_where_that_is_asked(
    tmp_path: Path, takes: bool, trained: str
) -> None:
    answer = chosen(pulled_models(tmp_path, asked="c0", takes=takes), [1.0, 1.2, 0.9, 1.0])
    assert answer == (trained, False)


@pytest.mark.parametrize("other", [[2.1, 2.1, 2.0, 2.1], [1.0, 0.0, float("nan"), 0.0]])
def test_bad_model_is_not_trained(tmp_path: Path, other: list[float]) -> None:
    answer = chosen(pulled_models(tmp_path, asked="c0", takes=True), other)
    assert answer == ("digest-c1", True)


def test_client_without_a_choice_trains_what_it_pulled(tmp_path: Path) -> None:
    alone = dataclasses.replace(pulled_models(tmp_path), choice=())
    assert chosen(alone, OWN) == ("digest-c1", None)


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
