"""One whole round of this project in a process of its own, from files to the next state.

Started by `benchmarks/engine.py`; a task comes as JSON on standard input, the costs leave as JSON
on standard output. Measured is what a round does between the seal and the ledger: hashing updates,
signatures and tables are not in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.fleet_files import Fleet, make_fleet, parse_size
from benchmarks.meter import Meter, pin_to_one_cpu
from benchmarks.our_side import load_what_is_worth_it
from clma.compiled import is_numba_installed
from clma.config import preset_config
from clma.parameters.tensor_file import TensorFile
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

ROUND = 2
"""A first round has no flags."""


class Shelf:
    """Opens a fleet's files by their names and keeps new models in a folder."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._folder = folder
        self._paths = {path.stem: path for path in (fleet.reference, *fleet.drifted, *fleet.quiet)}

    def open(self, ref: ArtifactRef) -> TensorFile:
        """Open a file of the fleet or a new model."""
        return TensorFile(self._paths.get(ref.sha256, self._folder / ref.sha256))

    def save(self, data: bytes) -> str:
        """Write a model."""
        digest = hashlib.sha256(data).hexdigest()
        (self._folder / digest).write_bytes(data)
        return digest


def play_round(fleet: Fleet, folder: Path) -> RoundOutcome:
    """Run the round in which a fleet's drifted clients flag, everybody being in one cohort."""
    base = fleet.reference.stem
    clients = [(path.stem, path in set(fleet.drifted)) for path in (*fleet.drifted, *fleet.quiet)]
    updates = tuple(
        SealedUpdate(client, base, ArtifactRef(client, client), weight, flag)
        for (client, flag), weight in sorted(zip(clients, fleet.weights, strict=True))
    )
    state = FederationState(
        federation="bench",
        round_num=ROUND,
        phase=Phase.SEALED,
        clients={
            client: ClientState(client, "c0", ClientStatus.ACTIVE, base, n_updates=1)
            for client, _ in clients
        },
        cohorts={"c0": Cohort("c0", None, 0, base)},
    )
    rows = tuple(UpdateRow(u.client_id, Verdict.ACCEPTED) for u in updates)
    shelf = Shelf(fleet, folder)
    return run_round(
        state,
        SealedRound(ROUND, updates, rows),
        preset_config("bench"),
        open_tensors=shelf.open,
        save_model=shelf.save,
    )


def main() -> None:
    """Do the task on standard input."""
    task: dict[str, Any] = json.load(sys.stdin)
    root = Path(task["dir"])
    pin_to_one_cpu()
    with tempfile.TemporaryDirectory(dir=root) as name:
        # Libraries load late what they need; that is no part of a round.
        play_round(make_fleet(parse_size("5x64:80%"), Path(name)), Path(name))
        if is_numba_installed():
            importlib.import_module("numba")
        size = parse_size(task["size"])
        load_what_is_worth_it(size.n_drifted * size.n_parameters)
        fleet = make_fleet(size, root)
        with Meter() as meter:
            outcome = play_round(fleet, Path(name))
    cohorts = Counter(client.cohort_id for client in outcome.state.clients.values())
    print(json.dumps({"cohorts": cohorts, **dataclasses.asdict(meter.reading)}))


if __name__ == "__main__":
    main()
