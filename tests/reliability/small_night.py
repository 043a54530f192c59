"""A day and a night of two plants, of which one drifts, each as a scene that can be played again.

Everything in a scene is a function of the folder it starts from: equal folders, equal bytes.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clma.client import pull, submit
from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import serialize_tensors
from clma.records import Phase

NAME = "small"
NOW = dt.datetime(2026, 1, 5, 20, tzinfo=dt.UTC)
WEIGHTS: Mapping[str, tuple[float, float, float]] = {"p1": (0, 0.1, 0.5), "p2": (3, 0, 0)}
"""What the plants send in round 2; the second one drifts."""

Received = Callable[[Path], None]
"""Told the inbox of every receipt."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Something that is done to a folder.

    Parameters
    ----------
    name : str
    stage : Path
        Where it is played; plants note where their files lie.
    before : Path
        Folder to start from, as a copy.
    earlier : mapping of str to bytes
        The files in it.
    act : callable
        Goes on from wherever an earlier attempt was left.
    after : mapping of str to bytes
        The files that come of it when nothing disturbs it.
    """

    name: str
    stage: Path
    before: Path
    earlier: Mapping[str, bytes]
    act: Callable[[Path, Received], None]
    after: Mapping[str, bytes]

    def start(self) -> None:
        """Put a fresh copy of the folder to start from on the stage."""
        shutil.rmtree(self.stage, ignore_errors=True)
        shutil.copytree(self.before, self.stage)


def scenes(folder: Path) -> tuple[Scene, Scene]:
    """Return the day and the night of round 2, played once without a disturbance."""
    stage, morning, evening = (folder / name for name in ("stage", "morning", "evening"))
    _prepare(stage)
    shutil.copytree(stage, morning)
    day(stage, _nothing)
    shutil.copytree(stage, evening)
    night(stage, _nothing)
    return (
        Scene("day", stage, morning, visible(morning), day, visible(evening)),
        Scene("night", stage, evening, visible(evening), night, visible(stage)),
    )


def day(folder: Path, received: Received) -> None:
    """Let every plant pull and send."""
    for client_id in WEIGHTS:
        _send(folder, client_id, drifts=client_id == "p2", received=received)


def night(folder: Path, _received: Received) -> None:
    """Close round 2 and open round 3."""
    federation = Federation.open(folder / "store", NAME)
    state = federation.state()
    if state.round_num == 2 and state.phase in {Phase.OPEN, Phase.SEALED}:
        close_round(federation, now=NOW, force=True)
    else:
        open_next_round(federation, now=NOW)


def visible(folder: Path) -> dict[str, bytes]:
    """Return every file that has a name of its own."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if not path.name.startswith(".")
    }


def drafts(folder: Path) -> list[Path]:
    """Return what failed writers left."""
    return sorted(folder.rglob(".*.tmp"))


def _prepare(folder: Path) -> None:
    folder.mkdir()
    base = _written(folder / "base.safetensors", (0, 0, 0))
    config = preset_config(NAME, identity={"updates": "unsigned"})
    federation = Federation.create(folder / "store", config, base, WEIGHTS, now=NOW)
    open_next_round(federation, now=NOW)
    for client_id, weights in WEIGHTS.items():
        _written(folder / f"{client_id}-trained.safetensors", (0, 0, 0))
        _send(folder, client_id, drifts=False, received=_nothing)
        _written(folder / f"{client_id}-trained.safetensors", weights)
    close_round(federation, now=NOW, force=True)


def _written(path: Path, weights: tuple[float, float, float]) -> Path:
    path.write_bytes(serialize_tensors({"w": np.array(weights, np.float32)}))
    return path


def _send(folder: Path, client_id: str, *, drifts: bool, received: Received) -> None:
    store = folder / "store"
    receipt = submit(
        store,
        NAME,
        client_id,
        tensors=folder / f"{client_id}-trained.safetensors",
        n_examples=10,
        drift_flag=drifts,
        pulled=pull(store, NAME, client_id, folder / "plants" / client_id / "m.safetensors"),
        now=NOW,
    )
    inbox = store / f"inbox/round={receipt.round_num:06d}/{client_id}"
    received(inbox)
    # When it came is the clock's word, and the only one in a round that two runs do not share.
    os.utime(inbox / "update.json", (NOW.timestamp(), NOW.timestamp()))


def _nothing(_: Path) -> None:
    pass
