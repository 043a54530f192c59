"""Gas sensors that age: eight batches from 36 months, ten sites, six gases.

The drift is real and gradual: what sixteen metal-oxide sensors answer to one gas changes over the
years. A model of the first batch names 98 of 100 gases there and 31 to 46 of 100 in the late
batches. Two rounds make a batch. The sites are ours: each gets its part of every batch.

References
----------
.. [1] Vergara et al. (2012), "Chemical gas sensor drift compensation using classifier ensembles",
   Sensors and Actuators B 166. Data: UCI Machine Learning Repository, data set 270.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clma.errors import InvalidConfigError
from clma.simulation.dealing import class_shares, deal_evenly, deal_skewed, hold_out
from clma.simulation.fleet import Fleet, ModelSpec
from clma.simulation.scaling import scale
from clma.simulation.schedule import BASE, Concept, DriftEvent, Schedule, client_names
from clma.simulation.shards import ShardSource
from clma.simulation.table import RecordedTable, TableColumns, read_table
from clma.simulation.training_config import TrainingConfig

__all__ = ["BATCHES", "CLASSES", "FILE_NAME", "gas_fleet"]

FILE_NAME = "gas_drift_8of10.parquet"
CLASSES = ("Ethanol", "Ethylene", "Ammonia", "Acetaldehyde", "Acetone", "Toluene")
BATCHES = ("1", "2", "3", "4", "5", "6", "8", "9")
"""Batches 7 and 10 of the original are not in the file."""

FEATURES = ("DR", "nDR", *(f"EMA{d}_{a}" for d in "id" for a in ("0.001", "0.01", "0.1")))
COLUMNS = TableColumns(
    time="row_in_batch",
    label="gas",
    condition="batch",
    variables=tuple(f"s{sensor:02d}_{feature}" for sensor in range(1, 17) for feature in FEATURES),
)
N_CLIENTS = 10
ROUNDS_PER_BATCH = 2
ROUNDS_LATE = 2
TEST_SHARE = 0.3
ROUND_SHARE = 0.8  # of a site's rows of the batch, so that its two rounds differ
TRAINING = TrainingConfig(local_epochs=5)
_SPLIT = 3  # stream number of the split; see `clma.simulation.fleet`


def gas_fleet(
    data: Path, seed: int, *, half_late: bool, name: str = "gas", skew: float | None = None
) -> Fleet:
    """Build the fleet.

    Parameters
    ----------
    data : Path
        The Parquet file, or the folder that holds it.
    seed : int, >= 0
        Deals the rows, draws the rounds and the initial model.
    half_late : bool
        Whether the second half of the sites comes to each batch two rounds after the first.
    name : str
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of each site's shares of the gases, the same in all
        batches; None: all alike.

    Notes
    -----
    Concepts are the batches: sites at one batch belong together. Sites that are a batch apart may
    still be served best by one model; the truth does not know that.

    Raises
    ------
    InvalidConfigError
        If the file or a column is missing, or a batch has no rows.
    """
    table = read_table(data / FILE_NAME if data.is_dir() else data, COLUMNS, CLASSES)
    client_ids = client_names(N_CLIENTS)
    late = client_ids[N_CLIENTS // 2 :] if half_late else ()
    return Fleet(
        name,
        seed,
        _ageing(client_ids, late),
        _deal(table, client_ids, seed, skew),
        CLASSES,
        ModelSpec.of(
            "clma.simulation.mlp:mlp",
            n_inputs=len(COLUMNS.variables),
            n_hidden=64,
            n_classes=len(CLASSES),
        ),
        n_windows=len(table.labels),
        default_rounds=ROUNDS_PER_BATCH * len(BATCHES),
        training=TRAINING,
    )


def _ageing(client_ids: Sequence[str], late: Sequence[str]) -> Schedule:
    events = [
        DriftEvent(
            1 + ROUNDS_PER_BATCH * step + (ROUNDS_LATE if client_id in late else 0),
            client_id,
            Concept(f"batch-{batch}", batch),
        )
        for step, batch in enumerate(BATCHES[1:], start=1)
        for client_id in client_ids
    ]
    events.sort(key=lambda event: (event.round_num, event.client_id))
    return Schedule("stagger" if late else "same", tuple(client_ids), tuple(events))


def _deal(
    table: RecordedTable, client_ids: Sequence[str], seed: int, skew: float | None
) -> ShardSource:
    rng = np.random.default_rng([seed, _SPLIT])
    shares = None if skew is None else class_shares(len(client_ids), len(CLASSES), skew, rng)
    shards, held_out = {}, {}
    for batch in BATCHES:
        condition = BASE.condition if batch == BATCHES[0] else batch
        places = np.flatnonzero(table.conditions == batch)
        if len(places) == 0:
            raise InvalidConfigError(f"table has no rows of batch {batch}, wanted {BATCHES}")
        rows, held_out[condition] = (
            places[part] for part in hold_out(table.labels[places], TEST_SHARE, rng)
        )
        if shares is None:
            dealt = deal_evenly(table.labels, rows, len(client_ids), rng)
        else:
            dealt = deal_skewed(table.labels, rows, shares, len(rows) // len(client_ids), rng)
        shards.update({(c, condition): own for c, own in zip(client_ids, dealt, strict=True)})
    first = np.concatenate([shards[client_id, BASE.condition] for client_id in client_ids])
    return ShardSource(
        scale(table.values, np.sort(first)), table.labels, shards, held_out, share=ROUND_SHARE
    )
