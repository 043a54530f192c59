"""A fleet's own signatures: what the methods that live on them see and what they cannot see."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from clma.cohorting.opening import opening_moves
from clma.config import FederationConfig, preset_config
from clma.ledger.federation import Federation
from clma.simulation import load_fleet
from clma.simulation.features import initial_extractor
from clma.simulation.fleet import Fleet, Windows, WindowSource
from clma.simulation.life import closing, found_federation, live
from clma.simulation.schedule import Concept, DriftEvent, Schedule
from clma.simulation.scores import adjusted_rand_index
from clma.simulation.signatures import fleet_encoder, fleet_signatures, sent_signature_bytes
from tests.clma.shelf import Shelf

PRESETS = ["pacfl", "fecfl"]


def config(preset: str, *overrides: str) -> FederationConfig:
    share = {"share": ["weights", "flag", "examples", "signature"]}
    return preset_config("test", preset, overrides=overrides, privacy=share)


class Flat:
    """Windows as rows of numbers, as if they were embeddings."""

    def __init__(self, source: WindowSource) -> None:
        self.source = source

    def training(self, *args: object) -> Windows:
        windows, labels = self.source.training(*args)
        return windows.reshape(len(windows), -1), labels


def apart(fleet: Fleet) -> Fleet:
    """Return the fleet with every other client at another operating point from the start."""
    elsewhere = [DriftEvent(1, c, Concept("high-load", "high-load")) for c in fleet.client_ids[::2]]
    schedule = Schedule("apart", fleet.client_ids, tuple(elsewhere))
    return dataclasses.replace(fleet, schedule=schedule)


def found(fleet: Fleet, folder: Path, preset: str) -> Federation:
    return found_federation(fleet, folder / "store", "test", folder, preset=preset, n_rounds=2)


def agreement(fleet: Fleet, federation: Federation, round_num: int) -> float:
    clients = federation.state().clients
    return adjusted_rand_index(
        [fleet.concept(c, round_num) for c in clients],
        [client.cohort_id for client in clients.values()],
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("preset", PRESETS)
def test_two_operating_points_are_two_cohorts(tmp_path: Path, preset: str, seed: int) -> None:
    fleet = apart(load_fleet(None, "plant-stationary", seed))
    assert agreement(fleet, found(fleet, tmp_path, preset), 1) == 1.0


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("preset", PRESETS)
def test_plants_of_one_operating_point_are_one_cohort(
    tmp_path: Path, preset: str, seed: int
) -> None:
    federation = found(load_fleet(None, "plant", seed), tmp_path, preset)
    assert {c.cohort_id for c in federation.state().clients.values()} == {"c1"}


@pytest.mark.parametrize("preset", PRESETS)
def test_new_names_for_the_classes_are_invisible(shelf: Shelf, tmp_path: Path, preset: str) -> None:
    fleet = load_fleet(None, "plant-concept", 0)
    state = found(fleet, tmp_path, preset).state()

    later = opening_moves(
        state,
        config(preset),
        9,
        open_tensors=shelf.open,
        save_model=shelf.save,
        signature_of=fleet_signatures(fleet, config(preset)),
    )

    assert later.clients == state.clients


def test_a_client_that_moved_to_another_operating_point_is_seen_by_its_features(
    shelf: Shelf, tmp_path: Path
) -> None:
    fleet = load_fleet(None, "plant-covariate", 0)
    state = found(fleet, tmp_path, "fecfl").state()

    later = opening_moves(
        state,
        config("fecfl"),
        3,
        open_tensors=shelf.open,
        save_model=shelf.save,
        signature_of=fleet_signatures(fleet, config("fecfl")),
    )

    moved = {c for c, client in later.clients.items() if client.cohort_id != "c1"}
    assert moved == {c for c in fleet.client_ids if fleet.drifts(c, 3)}


@pytest.mark.parametrize("preset", PRESETS)
def test_signatures_are_the_same_whenever_they_are_asked_for(preset: str) -> None:
    one, other = (fleet_signatures(load_fleet(None, "plant", 1), config(preset)) for _ in range(2))
    assert one is not None
    assert other is not None
    other("plant-02", 5)

    for name, array in one("plant-01", 3).arrays.items():
        np.testing.assert_array_equal(array, other("plant-01", 3).arrays[name])


@pytest.mark.parametrize("preset", PRESETS)
def test_signatures_of_the_fleets_encoder_name_it_and_are_others(preset: str) -> None:
    fleet = load_fleet(None, "plant", 1)
    own, seen = (
        fleet_signatures(fleet, config(preset, f"cohorting.features={features}"))
        for features in ("own", "encoder")
    )
    assert own is not None
    assert seen is not None

    (mine,), (theirs,) = (s("plant-01", 1).arrays.values() for s in (own, seen))
    assert len(theirs) == fleet_encoder(fleet).dim != len(mine)
    assert seen("plant-01", 1).encoder == fleet_encoder(fleet).fingerprint


def test_embeddings_are_signed_as_they_are_under_the_name_of_their_encoder() -> None:
    plain = load_fleet(None, "plant", 1)
    fleet = dataclasses.replace(plain, encoder="made elsewhere", source=Flat(plain.source))
    windows, labels = fleet.training_windows("plant-01", 1)
    share = {"share": ["weights", "flag", "examples", "signature"]}

    signed = fleet_signatures(fleet, preset_config("test", "fmcl", privacy=share))

    assert signed is not None
    signature = signed("plant-01", 1)
    assert signature.encoder == "made elsewhere"
    np.testing.assert_allclose(
        signature.arrays["means"][0], windows[labels == labels.min()].mean(axis=0), rtol=1e-5
    )


def test_methods_without_signatures_have_no_source() -> None:
    assert fleet_signatures(load_fleet(None, "plant", 0), preset_config("test")) is None


def test_extractor_is_the_network_up_to_its_last_linear_layer() -> None:
    torch = pytest.importorskip("torch")
    from clma.simulation.cnn import cnn1d

    fleet = load_fleet(None, "plant", 3)
    windows, _ = fleet.training_windows("plant-01", 1)
    module = cnn1d(**fleet.model_arguments, seed=fleet.seed).eval()

    with torch.no_grad():
        logits = module.output(torch.from_numpy(initial_extractor(fleet)(windows)))
        wanted = module(torch.from_numpy(windows))

    np.testing.assert_allclose(logits.numpy(), wanted.numpy(), atol=1e-6)


def test_signatures_are_counted_where_they_placed_a_client(tmp_path: Path) -> None:
    fleet = load_fleet(None, "plant-covariate", 0, n_clients=2)
    federation = found(fleet, tmp_path, "fecfl")

    scores = live(
        fleet, federation, tmp_path / "plants", n_rounds=2, close=closing(fleet, federation)
    )

    signed = sent_signature_bytes(fleet, federation, 2)
    assert signed == 2 * 64 * 8
    assert scores.bytes_up is not None
    assert scores.bytes_down is not None
    assert scores.bytes_up == scores.bytes_down + signed
