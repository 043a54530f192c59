"""A shelf of tensor files for tests of the algorithm, and the smallest states and rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clma.config import FederationConfig, preset_config
from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.records import (
    ArtifactRef,
    ClientState,
    ClientStatus,
    Cohort,
    FederationState,
    Phase,
    SealedUpdate,
)
from clma.round import RoundOutcome, run_round
from clma.rows import SealedRound, UpdateRow, Verdict


class Shelf:
    """Stores tensors in a folder and opens them by digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self._folder / digest).write_bytes(data)
        return digest

    def put(self, tensors: Mapping[str, Any]) -> ArtifactRef:
        arrays = {
            name: np.asarray(value, np.float32) if isinstance(value, list) else np.asarray(value)
            for name, value in tensors.items()
        }
        digest = self.save(serialize_tensors(arrays))
        return ArtifactRef(digest, digest)

    def open(self, ref: ArtifactRef) -> TensorFile:
        return TensorFile(self._folder / ref.sha256)

    def read(self, digest: str, name: str = "w") -> list[float]:
        with self.open(ArtifactRef(digest, digest)) as file:
            return [float(x) for x in file.read(name).ravel()]


def one_cohort(digest: str, client_ids: list[str], *, round_num: int = 2) -> FederationState:
    """Return a state with everybody in the root cohort, one update each behind them."""
    return FederationState(
        federation="test",
        round_num=round_num,
        phase=Phase.SEALED,
        clients={
            c: ClientState(c, "c0", ClientStatus.ACTIVE, digest, n_updates=1) for c in client_ids
        },
        cohorts={"c0": Cohort("c0", None, 0, digest)},
    )


def sealed(updates: list[SealedUpdate], *, round_num: int = 2) -> SealedRound:
    """Seal updates as they come."""
    rows = tuple(UpdateRow(u.client_id, Verdict.ACCEPTED) for u in updates)
    return SealedRound(round_num, tuple(updates), rows)


def update(
    shelf: Shelf,
    client_id: str,
    weights: list[float],
    base: str,
    *,
    flag: bool = False,
    n: int = 10,
    **fields: Any,
) -> SealedUpdate:
    return SealedUpdate(client_id, base, shelf.put({"w": weights}), n, flag, **fields)


def run(
    shelf: Shelf,
    state: FederationState,
    updates: list[SealedUpdate],
    config: FederationConfig | None = None,
) -> RoundOutcome:
    round_ = sealed(updates, round_num=state.round_num)
    return run_round(
        state,
        round_,
        config or preset_config("test"),
        open_tensors=shelf.open,
        save_model=shelf.save,
    )


def models(shelf: Shelf, outcome: RoundOutcome) -> Mapping[str, list[float]]:
    return {
        c.cohort_id: [round(x, 6) for x in shelf.read(c.model_digest)]
        for c in outcome.state.cohorts.values()
    }


def cohorts_of(outcome: RoundOutcome) -> Mapping[str, str]:
    return {c.client_id: c.cohort_id for c in outcome.state.clients.values()}
