"""The Cranfield 2015 benchmark as a fleet: sixteen recorded runs of a multiphase flow facility.

A client is a run, and knows its run's classes only: normal running and one of six faults. In
``gradual`` it lives through its recording: faults set in and grow worse by steps, as they did. In
all other schedules a run's blocks come in random order, so nothing drifts but what the script says.

References
----------
.. [1] Ruiz-Carcel et al. (2015), "Statistical process monitoring of a multiphase flow facility",
   Control Engineering Practice 42.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.families import rotating_families
from clma.simulation.fleet import Fleet, ModelSpec, Windows
from clma.simulation.replay import ReplaySource
from clma.simulation.scaling import scale
from clma.simulation.schedule import BASE, Concept, DriftEvent, Schedule, build_schedule
from clma.simulation.table import Block, TableColumns, cut_blocks, read_table

__all__ = ["CLASSES", "FILE_NAME", "cranfield_fleet"]

FILE_NAME = "cranfield2015_1hz.parquet"
CLASSES = (
    "normal",
    "air_line_blockage",
    "water_line_blockage",
    "top_sep_input_blockage",
    "open_direct_bypass",
    "slugging",
    "pressurization_2inch",
)
COLUMNS = TableColumns(
    time="t_s",
    label="fault",
    condition="run",
    recording=("run",),
    client="run",
    variables=(
        "PT312_air_delivery_pressure_MPa",
        "PT401_riser_bottom_pressure_MPa",
        "PT408_riser_top_pressure_MPa",
        "PT403_top_separator_pressure_MPa",
        "PT501_3phase_separator_pressure_MPa",
        "dP_PT401_PT408_MPa",
        "dP_VC404_MPa",
        "FT305_air_in_flow_Sm3_s",
        "FT104_water_in_flow_kg_s",
        "FT407_riser_top_flow_kg_s",
        "LI405_top_separator_level_m",
        "FT406_top_sep_out_flow_kg_s",
        "FT407_riser_top_density_kg_m3",
        "FT406_top_sep_out_density_kg_m3",
        "FT104_water_in_density_kg_m3",
        "FT407_riser_top_temp_C",
        "FT406_top_sep_out_temp_C",
        "FT104_water_in_temp_C",
        "LI504_3phase_gas_liquid_level_pct",
        "VC501_valve_pct",
        "VC302_valve_pct",
        "VC101_valve_pct",
        "PO1_water_pump_current_A",
        "PT417_2inch_mixing_pressure_MPa",
    ),
)
BLOCK_ROWS = 60
WINDOW = 30
TEST_SHARE = 0.3
N_PARTS = 10  # rounds that a recording is spread over
_SPLIT = 3  # stream numbers of the split and of who drifts; see `clma.simulation.fleet`
_ROLES = 5

Parts = Mapping[tuple[str, str], Sequence[Block]]
"""Blocks of each run and part of its time; a run that is not cut has the part ``base`` only."""


@dataclass(frozen=True, slots=True, eq=False)
class RunSource:
    """Windows of recorded runs; held out is each run's own.

    Parameters
    ----------
    replay : ReplaySource
        Its conditions are ``run/part``.
    """

    replay: ReplaySource

    def training(
        self, client_id: str, condition: str, n_windows: int, rng: np.random.Generator
    ) -> Windows:
        """Draw windows of a run's part; see `ReplaySource.training`."""
        return self.replay.training(client_id, f"{client_id}/{condition}", n_windows, rng)

    def held_out(self, client_id: str, condition: str, rng: np.random.Generator) -> Windows:
        """Cut the run's own held-out blocks of the part into windows."""
        return self.replay.held_out(client_id, f"{client_id}/{condition}", rng)


def cranfield_fleet(data: Path, shape: str, seed: int, *, name: str = "cranfield") -> Fleet:
    """Build the fleet.

    Parameters
    ----------
    data : Path
        The Parquet file, or the folder that holds it.
    shape : str
        See `clma.simulation.schedule.build_schedule`. ``gradual`` is the recorded order, in ten
        parts of as many blocks, a round each; ``class-groups`` puts the runs of one fault together;
        the others rotate labels.
    seed : int, >= 0
        Splits the blocks, draws the windows, the initial model and, where labels rotate, which runs
        do: no fault is always on the side that stays.
    name : str

    Notes
    -----
    A scripted concept is a labelling, as everywhere. In ``gradual`` the concept of a round is the
    fault that most of the part's blocks show, ``base`` where that is normal running. So the truth
    puts runs that show the same fault now into one cohort; labels never contradict each other, and
    one model for all is not wrong. Every round is another part of the recording and counts as a
    change, hence there are no false alarms to be counted.

    Raises
    ------
    InvalidConfigError
        If the file or a column is missing, a run is too short or does not begin in normal running.
    """
    table = read_table(data / FILE_NAME if data.is_dir() else data, COLUMNS, CLASSES)
    blocks, order = cut_blocks(table, BLOCK_ROWS)
    runs: dict[str, list[Block]] = {}
    for block in blocks:
        runs.setdefault(f"run-{block.client}", []).append(block)
    client_ids = tuple(sorted(runs))
    parts = _in_time(runs) if shape == "gradual" else {(c, BASE.condition): runs[c] for c in runs}
    replay = _split(parts, table.values[order], whole=shape == "gradual", seed=seed)
    if shape == "gradual":
        schedule = _recorded_schedule(client_ids, parts)
    elif shape == "class-groups":
        schedule = _faults_apart(runs)
    else:
        schedule = _scripted_schedule(client_ids, shape, seed)
    return Fleet(
        name,
        seed,
        schedule,
        RunSource(replay),
        CLASSES,
        ModelSpec.of(
            "clma.simulation.cnn:cnn1d",
            n_variables=len(COLUMNS.variables),
            n_classes=len(CLASSES),
            window=WINDOW,
        ),
        default_rounds=N_PARTS,
    )


def _in_time(runs: Mapping[str, Sequence[Block]]) -> Parts:
    parts: dict[tuple[str, str], Sequence[Block]] = {}
    for client_id, blocks in runs.items():
        if len(blocks) < 2 * N_PARTS:
            raise InvalidConfigError(
                f"{client_id} has {len(blocks)} blocks of {BLOCK_ROWS} rows, "
                f"wanted {2 * N_PARTS}: one to train and one to test on in each part"
            )
        edges = [number * len(blocks) // N_PARTS for number in range(N_PARTS + 1)]
        for number in range(N_PARTS):
            # A run is one recording, so the order of its rows is that of time.
            parts[client_id, _part(number)] = blocks[edges[number] : edges[number + 1]]
    return parts


def _part(number: int) -> str:
    return BASE.condition if number == 0 else f"part-{number + 1:02d}"


def _split(
    parts: Parts, values: NDArray[np.floating[Any]], *, whole: bool, seed: int
) -> ReplaySource:
    """Hold blocks of each part and class out, at least one of a part, never all of them."""
    rng = np.random.default_rng([seed, _SPLIT])
    training: dict[tuple[str, str], tuple[Block, ...]] = {}
    held_out: dict[str, tuple[Block, ...]] = {}
    for (client_id, part), blocks in sorted(parts.items()):
        shuffled = [blocks[place] for place in rng.permutation(len(blocks))]
        n_test = {
            label: round(TEST_SHARE * sum(b.label == label for b in blocks))
            for label in sorted({b.label for b in blocks})
        }
        if not any(n_test.values()):
            n_test[shuffled[0].label] = 1
        chosen = [b for label, n in n_test.items() for b in _first(shuffled, label, n)]
        held_out[f"{client_id}/{part}"] = tuple(chosen)
        training[client_id, f"{client_id}/{part}"] = tuple(b for b in shuffled if b not in chosen)
    base = sorted(
        block.start
        for (_, place), blocks in training.items()
        if place.endswith(f"/{BASE.condition}")
        for block in blocks
    )
    rows = np.concatenate([np.arange(start, start + BLOCK_ROWS) for start in base])
    return ReplaySource(
        scale(values, rows),
        training,
        held_out,
        BASE.condition,
        WINDOW,
        # A part is new anyway; of a whole run a random half makes a round.
        block_share=1.0 if whole else 0.5,
    )


def _first(blocks: Sequence[Block], label: int, n: int) -> list[Block]:
    return [block for block in blocks if block.label == label][:n]


def _scripted_schedule(client_ids: Sequence[str], shape: str, seed: int) -> Schedule:
    order = np.random.default_rng([seed, _ROLES]).permutation(len(client_ids))
    families = rotating_families("concept", shape, (), len(CLASSES))
    drawn = build_schedule(shape, [client_ids[place] for place in order], families)
    return dataclasses.replace(drawn, client_ids=tuple(client_ids))


def _faults_apart(runs: Mapping[str, Sequence[Block]]) -> Schedule:
    """Put runs together that recorded the same faults; nothing drifts."""
    starts = []
    for client_id in sorted(runs):
        faults = sorted({block.label for block in runs[client_id]} - {0})
        name = "+".join(CLASSES[fault] for fault in faults)
        starts.append((client_id, Concept(name or BASE.name)))
    return Schedule("class-groups", tuple(sorted(runs)), (), starts=tuple(starts))


def _recorded_schedule(client_ids: Sequence[str], parts: Parts) -> Schedule:
    events = []
    for client_id in client_ids:
        for number in range(N_PARTS):
            labels = np.array([block.label for block in parts[client_id, _part(number)]])
            label = int(np.bincount(labels).argmax())
            name = BASE.name if label == 0 else CLASSES[label]
            if number > 0:
                events.append(DriftEvent(number + 1, client_id, Concept(name, _part(number))))
            elif name != BASE.name:
                raise InvalidConfigError(f"{client_id} begins with {name}, wanted normal running")
    events.sort(key=lambda event: (event.round_num, event.client_id))
    return Schedule("gradual", tuple(client_ids), tuple(events))
