"""Files that are still being written, that never get whole, or that are no tensors."""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clma.client import submit
from clma.errors import InvalidUpdateError
from clma.ledger.federation import Federation
from clma.ledger.inbox import read_inbox
from clma.ledger.keys import inbox_prefix
from clma.parameters.tensor_file import serialize_tensors
from clma.round import RoundOutcome
from clma.rows import SealedRound, Verdict
from tests.acceptance.hostile.fleet import (
    NAME,
    decided,
    drop,
    found,
    message_of,
    night,
    night_without,
    row_of,
    send,
    send_good,
    trained,
)

STEP_BYTES = 64 * 1024
LARGE_BYTES = 40 * 10**6


def folder_of(federation: Federation, client_id: str) -> Path:
    """Return where a plant drops its files."""
    folder = Path(federation.store.url) / inbox_prefix(federation.state().round_num) / client_id
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def written_by_and_by(path: Path, data: bytes, n_looks: int) -> Iterator[None]:
    """Write a file in small steps, with pauses to look at it."""
    steps = range(0, len(data), STEP_BYTES)
    with path.open("wb", buffering=0) as file:
        for number, start in enumerate(steps):
            file.write(data[start : start + STEP_BYTES])
            if number % (len(steps) // n_looks) == 0:
                yield


def look(federation: Federation) -> SealedRound:
    """Judge the open round as its seal would now, and record nothing."""
    state = federation.state()
    return read_inbox(federation.store, state, federation.config, federation.spec)


def test_a_file_that_grows_is_never_called_corrupt_and_counts_in_its_round(tmp_path: Path) -> None:
    large = {"w": np.zeros(LARGE_BYTES // 4, np.float32)}
    federation = found(tmp_path, base=large, clients=["plant-a"])
    data = serialize_tensors({"w": large["w"] + 1})
    path = folder_of(federation, "plant-a") / "update.safetensors"

    reasons = {look(federation).rows[0].reason for _ in written_by_and_by(path, data, n_looks=8)}

    assert reasons == {"INCOMPLETE"}
    digest = hashlib.sha256(data).hexdigest()
    message = message_of(federation.state(), "plant-a", tensors_sha256=digest)
    drop(federation, "plant-a", "update.json", message)
    outcome = night(federation)
    assert [(r.verdict, r.reason) for r in outcome.decision.updates] == [(Verdict.ACCEPTED, None)]


@pytest.fixture(scope="module")
def without_f(tmp_path_factory: pytest.TempPathFactory) -> RoundOutcome:
    return night_without(tmp_path_factory.mktemp("without"), "plant-f")


WHOLE = serialize_tensors(trained("plant-f", 1))


@pytest.mark.parametrize("share", [0.0, 0.6, 0.999])
@pytest.mark.parametrize(
    ("announced", "reason"), [(False, "INCOMPLETE"), (True, "DIGEST_MISMATCH")]
)
def test_a_file_whose_writer_died_costs_its_own_vote_only(
    tmp_path: Path, without_f: RoundOutcome, share: float, announced: bool, reason: str
) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-f"])
    folder = folder_of(federation, "plant-f")
    (folder / "update.safetensors").write_bytes(WHOLE[: int(share * len(WHOLE))])
    if announced:
        digest = hashlib.sha256(WHOLE).hexdigest()
        message = message_of(federation.state(), "plant-f", tensors_sha256=digest)
        (folder / "update.json").write_bytes(message)

    outcome = night(federation)

    assert decided(outcome) == decided(without_f)
    assert row_of(outcome, "plant-f").reason == reason


def test_a_file_that_is_renamed_into_place_counts(tmp_path: Path) -> None:
    federation = found(tmp_path)
    folder = folder_of(federation, "plant-f")
    for name, data in {
        "update.safetensors": WHOLE,
        "update.json": message_of(
            federation.state(), "plant-f", tensors_sha256=hashlib.sha256(WHOLE).hexdigest()
        ),
    }.items():
        (folder / f".{name}.part").write_bytes(data)
        (folder / f".{name}.part").rename(folder / name)

    assert row_of(night(federation), "plant-f").verdict is Verdict.ACCEPTED


class Bomb:
    """Makes a file in the current folder when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("marker", "w"))


def torch_file(*, zipped: bool) -> bytes:
    """Return what ``torch.save`` writes."""
    buffer = io.BytesIO()
    torch.save({"w": Bomb()}, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def numpy_file() -> bytes:
    """Return an array of objects as numpy writes it."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()], object), allow_pickle=True)
    return buffer.getvalue()


def zip_file() -> bytes:
    """Return an archive with a pickle in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb()))
    return buffer.getvalue()


BOMBS = {
    "torch": torch_file(zipped=True),
    "torch-legacy": torch_file(zipped=False),
    "numpy": numpy_file(),
    "zip": zip_file(),
    "pickle": pickle.dumps({"w": Bomb()}),
    "pickle-behind-a-header": (2).to_bytes(8, "little") + b"{}" + pickle.dumps(Bomb()),
}


def test_the_bombs_would_go_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(BOMBS["pickle"])  # noqa: S301 - what the product must never do
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("kind", BOMBS)
def test_a_disguised_program_is_refused_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_f: RoundOutcome, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    federation = found(tmp_path)
    send_good(federation, but=["plant-f"])
    send(federation, "plant-f", BOMBS[kind])

    outcome = night(federation)

    assert decided(outcome) == decided(without_f)
    assert row_of(outcome, "plant-f").reason == "BAD_FORMAT"
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".zip", ".safetensors"])
def test_a_plant_cannot_send_a_program_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    federation = found(tmp_path)
    path = tmp_path / f"trained{suffix}"
    path.write_bytes(BOMBS["torch"])

    with pytest.raises(InvalidUpdateError) as caught:
        submit(federation, NAME, "plant-f", tensors=path, n_examples=1, drift_flag=False)

    assert caught.value.reason == "BAD_FORMAT"
    assert not (tmp_path / "marker").exists()
