"""The PRONTO benchmark as a fleet: a real three-phase flow facility, days 2 to 4.

Ten clients share one plant's recording, dealt by blocks. All start at 120 Sm3/h air and 0.1 kg/s
water; the real drift is the move to 150 Sm3/h and 0.5 kg/s, the labelled one a new naming of
faults.

References
----------
.. [1] Stief et al. (2019), "A heterogeneous benchmark dataset for data analytics: multiphase flow
   facility case study", Journal of Process Control 79. Data: doi:10.5281/zenodo.1341583.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clma.simulation.families import families_of
from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.long_schedules import schedule_of
from clma.simulation.replay import replay_table
from clma.simulation.schedule import client_names
from clma.simulation.standing_replay import deal_blocks_apart
from clma.simulation.standing_schedules import APART_SHAPES
from clma.simulation.table import RecordedTable, TableColumns, read_table

__all__ = ["CLASSES", "FILE_NAME", "pronto_fleet"]

FILE_NAME = "pronto_process_1hz.parquet"
CLASSES = ("normal", "air_blockage", "air_leakage", "diverted_flow", "slugging")
BASE_CONDITION = "120/0.1"
MOVED_CONDITION = "150/0.5"
OTHER_CONDITIONS = "day-4"
"""All set points of day 4 together; each of them alone is too short to be a condition."""

COLUMNS = TableColumns(
    time="t_s",
    label="fault",
    condition="condition",
    recording=("day",),
    variables=(
        "air_in_flow_Sm3_h",
        "air_temp_C",
        "air_delivery_pressure_bar",
        "water_in_flow_kg_s",
        "water_temp_C",
        "water_density_kg_m3",
        "mixing_zone_pressure_bar",
        "riser_top_pressure_bar",
        "sep2ph_pressure_bar",
        "sep2ph_air_out_flow",
        "sep2ph_water_out_flow_kg_s",
        "sep3ph_pressure_bar",
        "sep3ph_air_valve_pct",
        "sep3ph_water_oil_level_pct",
        "coalescer_water_level_pct",
        "coalescer_outlet_valve_pct",
        "water_tank_level_m",
    ),
)


def pronto_fleet(
    data: Path,
    shape: str,
    kind: str,
    seed: int,
    *,
    name: str = "pronto",
    n_clients: int = 10,
    skew: float | None = None,
) -> Fleet:
    """Build the fleet.

    Parameters
    ----------
    data : Path
        The Parquet file, or the folder that holds it.
    shape : str
        See `clma.simulation.long_schedules.schedule_of`.
    kind : {"covariate", "concept", "mixed"}
    seed : int, >= 0
        Deals the blocks, draws the windows and the initial model.
    name : str
    n_clients : int, >= 1
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of each client's class shares; None: all alike.

    Raises
    ------
    InvalidConfigError
        If the file or a column is missing.
    """
    client_ids = client_names(n_clients)
    # A swap of the two air faults, and one of the two classes that remain: only these four occur.
    families = families_of(
        kind,
        shape,
        conditions=(MOVED_CONDITION, OTHER_CONDITIONS),
        n_classes=len(CLASSES),
        relabelled=(1, 2, 0, 3),
        # There is one condition to move to; with two families at once, one of them starts at day 4.
        n_moved=2 if shape == "repeat" else 1,
    )
    table = read_table(
        data / FILE_NAME if data.is_dir() else data,
        COLUMNS,
        CLASSES,
        ignored_labels=("unlabelled",),
    )
    source = replay_table(
        _pool_other_conditions(table),
        client_ids,
        seed=seed,
        base_condition=BASE_CONDITION,
        skew=None if shape == "dirichlet" else skew,
    )
    if shape in APART_SHAPES:
        # Every plant knows normal running; what sets groups apart are the faults.
        source = deal_blocks_apart(source, shape, client_ids, seed=seed, skew=skew, shared=(0,))
    return Fleet(
        name,
        seed,
        schedule_of(shape, client_ids, families),
        source,
        CLASSES,
        ModelSpec.of(
            "clma.simulation.cnn:cnn1d",
            n_variables=len(COLUMNS.variables),
            n_classes=len(CLASSES),
            window=source.window,
        ),
    )


def _pool_other_conditions(table: RecordedTable) -> RecordedTable:
    kept = np.isin(table.conditions.astype(str), [BASE_CONDITION, MOVED_CONDITION])
    # Blocks still end where the set point does: the recordings are told apart by it.
    _, set_points = np.unique(table.conditions.astype(str), return_inverse=True)
    recordings = table.recordings * (set_points.max() + 1) + set_points
    return RecordedTable(
        table.values,
        table.labels,
        np.where(kept, table.conditions, OTHER_CONDITIONS),
        table.times,
        recordings.astype(np.int64),
        table.clients,
    )
