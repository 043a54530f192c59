"""Fleets live under every method; what the methods promise of each other holds to the byte."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from clma.config import PRESETS
from clma.ledger.federation import Federation
from clma.simulation.life import RoundView, closing, found_federation, live
from clma.simulation.recipes import load_fleet
from clma.simulation.scores import FleetScores

N_CLIENTS = 3


def lived(
    folder: Path, preset: str, *overrides: str, n_rounds: int = 2
) -> tuple[Federation, FleetScores]:
    """Let three plants live for a few rounds."""
    fleet = load_fleet(None, "plant-stationary", seed=0, n_clients=N_CLIENTS)
    federation = found_federation(
        fleet,
        folder / "store",
        "fleet",
        folder,
        preset=preset,
        n_rounds=n_rounds,
        overrides=overrides,
    )
    close = closing(fleet, federation)
    return federation, live(fleet, federation, folder / "plants", n_rounds=n_rounds, close=close)


def test_late_client_is_registered_the_night_before_and_scored_from_then_on(
    tmp_path: Path,
) -> None:
    fleet = load_fleet(None, "plant-stationary", seed=0, n_clients=2)
    late = dataclasses.replace(fleet.schedule, joins=(("plant-02", 3),))
    fleet = dataclasses.replace(fleet, schedule=late)
    federation = found_federation(fleet, tmp_path / "store", "fleet", tmp_path, n_rounds=3)
    views: list[RoundView] = []

    live(
        fleet,
        federation,
        tmp_path,
        n_rounds=3,
        close=closing(fleet, federation),
        watch=views.append,
    )

    accepted = [[u.client_id for u in federation.sealed_round(r).updates] for r in (1, 2, 3)]
    assert accepted == [["plant-01"], ["plant-01"], ["plant-01", "plant-02"]]
    assert [len(view.scores) for view in views] == [1, 2, 2]


def models_of(federation: Federation) -> list[str]:
    return [c.model_digest for c in federation.state().cohorts.values()]


def test_fedprox_without_its_pull_is_fedavg_to_the_byte(tmp_path: Path) -> None:
    plain, _ = lived(tmp_path / "a", "fedavg")
    free, _ = lived(tmp_path / "b", "fedprox", "client.proximal_mu=0")
    pulled, _ = lived(tmp_path / "c", "fedprox")

    assert models_of(free) == models_of(plain) != models_of(pulled)


def test_one_model_to_choose_from_is_fedavg_to_the_byte(tmp_path: Path) -> None:
    plain, _ = lived(tmp_path / "a", "fedavg")
    ifca, _ = lived(tmp_path / "b", "ifca", "cohorting.n_models=1")

    assert models_of(ifca) == models_of(plain)


def test_nobody_learns_from_anybody_locally(tmp_path: Path) -> None:
    federation, scores = lived(tmp_path, "local", n_rounds=1)

    updates = federation.sealed_round(1).updates
    served = federation.state().clients
    assert scores.n_cohorts == N_CLIENTS
    assert len({client.serving_digest for client in served.values()}) == N_CLIENTS
    assert {u.n_examples for u in updates} == {96}


@pytest.mark.parametrize(("preset", "n_models"), [("fedavg", 1), ("ifca", 4)])
def test_every_model_that_is_sent_is_counted(tmp_path: Path, preset: str, n_models: int) -> None:
    federation, scores = lived(tmp_path, preset, n_rounds=1)

    size = federation.model_path(federation.state_at_seal(1).cohorts["c0"].model_digest).stat()
    assert scores.bytes_down == N_CLIENTS * n_models * size.st_size


def test_client_trains_the_model_of_its_smallest_loss(tmp_path: Path) -> None:
    share = 'privacy.share=["weights","flag","examples","choice","loss_vector"]'
    federation, _ = lived(tmp_path, "ifca", share, n_rounds=1)

    updates = federation.sealed_round(1).updates

    assert all(len(u.losses) == 4 for u in updates)
    assert all(u.losses[u.base_digest] == min(u.losses.values()) for u in updates)


@pytest.mark.parametrize("preset", [*PRESETS, "oracle"])
def test_a_fleet_lives_under_every_preset(tmp_path: Path, preset: str) -> None:
    federation, scores = lived(tmp_path, preset)
    state = federation.state()

    served: list[Any] = [c.serving_digest for c in state.clients.values()]
    assert all(federation.model_path(digest).exists() for digest in served)
    assert scores.final_stationary_f1 is not None
    assert scores.final_stationary_f1 > 0.1
    assert 1 <= scores.n_cohorts <= N_CLIENTS
