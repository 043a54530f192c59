"""What came of drift flags: healthy clients sent away and back again, slow drifts found.

    python -m benchmarks.flags build/pronto --methods clma,clma-probe --data-dir data

Reads the ``rounds.parquet`` that `flows.compare` leaves in each folder. A client is healthy in a
round if its data were the same mixture of concepts as in the round before, and that one as the
round before it; exiled if it raised its flag then and was in another cohort after the round than
before; home when it is back in the cohort it left, or among a majority of clients of its own
concept. Exiles of the last two rounds are not counted: they had no time. A client that drifts in
earnest before it is home counts as one that was not.

A slow drift is one whose share of the data rises over several rounds. It is found with the client's
first flag from its first round on, before the client drifts again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer

from benchmarks.sides import ONE_THREAD
from clma.simulation.cell_scenario import load_cell_fleet
from clma.simulation.fleet import Fleet
from clma.simulation.schedule import DriftEvent

ROUNDS_HOME = 2
ROUNDS_FOUND = 8

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Life:
    """One fleet under one method; every field by round, from 1 on.

    Parameters
    ----------
    cohorts : mapping of round to mapping of client id to cohort id
        After the round.
    flagged : mapping of round to set of client id
    changed : mapping of round to set of client id
        Whose data are another mixture of concepts than in the round before.
    concepts : mapping of round to mapping of client id to concept
    slow : tuple of DriftEvent
        Drifts over several rounds.
    """

    cohorts: Mapping[int, Mapping[str, str]]
    flagged: Mapping[int, Set[str]]
    changed: Mapping[int, Set[str]]
    concepts: Mapping[int, Mapping[str, str]]
    slow: tuple[DriftEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Exile:
    """A healthy client that was sent away.

    Parameters
    ----------
    client_id : str
    round_num : int
        In which it raised its flag.
    n_rounds : int or None
        After which it was home; None: not within the life that was recorded.
    """

    client_id: str
    round_num: int
    n_rounds: int | None


def exiles(life: Life) -> Iterator[Exile]:
    """Find the exiles of one recorded life."""
    last = max(life.cohorts)
    for round_num in range(2, last - ROUNDS_HOME + 1):
        for client_id in sorted(life.flagged[round_num]):
            left = life.cohorts[round_num - 1].get(client_id)
            changed = any(client_id in life.changed[r] for r in (round_num - 1, round_num))
            if left not in {None, life.cohorts[round_num][client_id]} and not changed:
                yield Exile(client_id, round_num, _rounds_home(life, client_id, round_num))


def _rounds_home(life: Life, client_id: str, round_num: int) -> int | None:
    left = life.cohorts[round_num - 1][client_id]
    for later in range(round_num + 1, max(life.cohorts) + 1):
        if client_id in life.changed[later]:
            return None
        if life.cohorts[later][client_id] == left or _is_among_its_own(life, client_id, later):
            return later - round_num
    return None


def _is_among_its_own(life: Life, client_id: str, round_num: int) -> bool:
    cohorts, concepts = life.cohorts[round_num], life.concepts[round_num]
    others = [c for c in cohorts if c != client_id and cohorts[c] == cohorts[client_id]]
    n_own = sum(concepts[c] == concepts[client_id] for c in others)
    return 2 * n_own > len(others)


def delays(life: Life) -> Iterator[int | None]:
    """Say of every slow drift after how many rounds it was found: 1 is its first; None: never."""
    for event in life.slow:
        ahead = [
            later.round_num
            for later in life.slow
            if later.client_id == event.client_id and later.round_num > event.round_num
        ]
        last = min([*ahead, max(life.flagged) + 1])
        rounds = range(event.round_num, last)
        found = (n for n in rounds if event.client_id in life.flagged[n])
        yield next((n - event.round_num + 1 for n in found), None)


def read_lives(folder: Path, method: str, data_dir: Path | None) -> list[Life]:
    """Read what a comparison recorded of a method, with the truth about its fleets."""
    columns = ["scenario", "method", "seed", "round", "client_id", "cohort", "flagged"]
    rows: dict[tuple[str, int], list[Row]] = {}
    for row in pq.read_table(folder / "rounds.parquet", columns=columns).to_pylist():
        if row["method"] == method and row["cohort"] is not None:
            rows.setdefault((row["scenario"], row["seed"]), []).append(row)
    return [
        _life(load_cell_fleet(scenario, seed, data_dir), rows[scenario, seed])
        for scenario, seed in sorted(rows)
    ]


def _life(fleet: Fleet, rows: Sequence[Row]) -> Life:
    cohorts: dict[int, dict[str, str]] = {}
    flagged: dict[int, set[str]] = {}
    for row in rows:
        cohorts.setdefault(row["round"], {})[row["client_id"]] = row["cohort"]
        flagged.setdefault(row["round"], set()).update([row["client_id"]] * bool(row["flagged"]))
    return Life(
        cohorts,
        flagged,
        {n: {c for c in cohorts[n] if n > 1 and fleet.changes(c, n)} for n in cohorts},
        {n: {c: fleet.concept(c, n) for c in cohorts[n]} for n in cohorts},
        tuple(e for e in fleet.schedule.events if e.ramp_rounds > 1 and e.round_num in cohorts),
    )


def main(
    folders: Annotated[list[Path], typer.Argument(help="As flows.compare leaves them.")],
    methods: Annotated[str, typer.Option("--methods", help="With commas between.")] = "clma",
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Recorded data.")] = None,
) -> None:
    """Count exiles and how soon they are home, slow drifts and how soon they are found."""
    os.environ.update(ONE_THREAD)
    for folder in folders:
        for method in methods.split(","):
            lives = read_lives(folder, method, data_dir)
            found = [exile for life in lives for exile in exiles(life)]
            n_flags = sum(len(clients) for life in lives for clients in life.flagged.values())
            soon = [e for e in found if e.n_rounds is not None and e.n_rounds <= ROUNDS_HOME]
            share = f", {len(soon) / len(found):.2f}" if found else ""
            print(
                f"{folder.name}, {method}: {len(lives)} lives, {n_flags} flags, {len(found)} "
                f"healthy clients exiled, {len(soon)} home within {ROUNDS_HOME} rounds{share}"
            )
            waits = [delay for life in lives for delay in delays(life)]
            in_time = sum(wait is not None and wait <= ROUNDS_FOUND for wait in waits)
            if waits:
                print(
                    f"{folder.name}, {method}: {len(waits)} slow drifts, {in_time} found within "
                    f"{ROUNDS_FOUND} rounds, the latest after {max(w or 0 for w in waits)}, "
                    f"{waits.count(None)} never"
                )


if __name__ == "__main__":
    typer.run(main)
