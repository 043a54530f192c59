"""Fleets that benchmarks run on: reproducible, shared between sizes, readable by everybody."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.fleet_files import (
    NoRoomError,
    delete_fleets,
    flat,
    layer_sizes,
    make_fleet,
    parse_size,
    read_tensors,
)
from clma.parameters.tensor_file import TensorFile


@pytest.mark.parametrize("text", ["10x545290", "1000x1000000:10%", "3x8"])
def test_a_size_reads_as_it_is_written(text: str) -> None:
    assert str(parse_size(text)) == text


def test_a_size_may_use_powers_of_ten() -> None:
    size = parse_size("20x11.2e6:25%")
    assert (size.n_clients, size.n_parameters, size.n_drifted) == (20, 11_200_000, 5)


@pytest.mark.parametrize("text", ["", "10", "10x", "0x100", "10x7", "10x100:0%", "10x100:101%"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted CLIENTSxPARAMETERS"):
        parse_size(text)


@pytest.mark.parametrize("n_parameters", [8, 37, 545_290])
def test_layers_hold_every_parameter_once(n_parameters: int) -> None:
    sizes = layer_sizes(n_parameters).values()
    assert sum(sizes) == n_parameters
    assert min(sizes) >= 1


def test_a_client_is_the_same_in_every_fleet_of_its_model(tmp_path: Path) -> None:
    few = make_fleet(parse_size("2x100"), tmp_path / "few")
    many = make_fleet(parse_size("5x100"), tmp_path / "many")
    assert [p.read_bytes() for p in few.drifted] == [p.read_bytes() for p in many.drifted[:2]]


def test_files_that_are_there_are_not_written_again(tmp_path: Path) -> None:
    before = make_fleet(parse_size("2x100"), tmp_path).reference.stat()
    assert make_fleet(parse_size("3x100"), tmp_path).reference.stat().st_ino == before.st_ino


def test_this_projects_reader_finds_the_same_tensors(tmp_path: Path) -> None:
    path = make_fleet(parse_size("1x100"), tmp_path).drifted[0]
    tensors = read_tensors(path)
    with TensorFile(path) as file:
        assert {s.name for s in file.specs} == set(tensors)
        assert all(np.array_equal(file.read(name), tensors[name]) for name in tensors)
    assert np.array_equal(flat(path), np.concatenate(list(tensors.values())))


def test_drifted_clients_move_with_their_family_and_quiet_ones_with_nobody(tmp_path: Path) -> None:
    fleet = make_fleet(parse_size("5x10000:80%"), tmp_path)
    moves = [flat(path) - flat(fleet.reference) for path in (*fleet.drifted, *fleet.quiet)]
    cosines = np.corrcoef(moves)
    assert cosines[0, 2] > 0.7
    assert cosines[1, 3] > 0.7
    assert np.abs(cosines[0, [1, 3, 4]]).max() < 0.1


def test_only_fleets_are_deleted(tmp_path: Path) -> None:
    folder = make_fleet(parse_size("2x100"), tmp_path).reference.parent
    make_fleet(parse_size("2x200"), tmp_path)
    kept = [tmp_path / "notes.safetensors", folder / "notes.txt"]
    for path in kept:
        path.write_text("mine")
    delete_fleets(tmp_path)
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


def test_a_fleet_without_room_is_refused_before_a_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(NoRoomError, match=r"2x100: .* GB are free"):
        make_fleet(parse_size("2x100"), tmp_path)
    assert list(tmp_path.rglob("*.safetensors")) == []
