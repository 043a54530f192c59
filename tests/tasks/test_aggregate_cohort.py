"""The tasks of a night make the bytes that a round in one process makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prefect.logging import disable_run_logger

from clma.aggregation import AGGREGATORS
from clma.config import preset_config
from clma.decision import AggregatedModel
from clma.ledger.federation import Federation
from clma.night import close_round
from clma.records import Cohort
from clma.round import run_round
from clma.sweep.columns import BLOCK, MIN_BLOCKS
from tasks.aggregate_cohort import aggregate_cohort
from tasks.choose_round import ChosenRound
from tasks.form_groups import form_groups
from tasks.place_groups import place_groups
from tasks.quarantine_clients import VARIABLE, quarantine_clients
from tasks.seal_round import seal_round
from tasks.sweep_updates import sweep_updates
from tests.clma.ledger.fleet import NOW, drop, written

BORDERS = 3 * MIN_BLOCKS * BLOCK, 5
"""Columns of two tensors: more than three blocks, so that there are stripes to divide."""


def found(folder: Path, method: str, **aggregation: str) -> Federation:
    """Make a federation of eight plants, three of whom drifted the same way in round 2."""
    rng = np.random.default_rng(0)

    def model(shift: float) -> dict[str, np.ndarray]:
        tensors = {"a": rng.normal(shift, 1, BORDERS[0]), "bn.running_var": rng.normal(size=5)}
        return {name: values.astype(np.float32) for name, values in tensors.items()}

    config = preset_config(
        "fleet",
        identity={"updates": "unsigned"},
        aggregation={"method": method, "n_byzantine": 0, "clip_factor": 0.99, **aggregation},
    )
    base = written(folder / "base.safetensors", model(0.0))
    ids = [f"p{i}" for i in range(8)]
    federation = Federation.create(folder / "store", config, base, ids, now=NOW)
    federation.open_round(now=NOW)
    for round_num in (1, 2):
        for i, client_id in enumerate(ids):
            away = round_num == 2 and i > 4
            drop(federation, client_id, model(5.0 * away), n_examples=10 + i, drift_flag=away)
        if round_num == 1:
            close_round(federation, now=NOW, force=True)
    return federation


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        *((method, "none") for method in (*AGGREGATORS, "robust")),
        ("clipped_mean", "flash"),
        ("weighted_mean", "adaptive_fedavg"),
    ],
)
def test_tasks_of_any_number_of_shards_make_the_models_of_one_process(
    tmp_path: Path, method: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = found(tmp_path, method, server_optimizer=optimizer)
    monkeypatch.setenv(VARIABLE, "3")
    with disable_run_logger():
        night = seal_round.fn(federation.store.url, "fleet", ChosenRound(2, "", ""))
        quarantine = quarantine_clients.fn(night)
        swept = [sweep_updates.fn(shard, night, quarantine) for shard in quarantine.shards]
        groupings = [form_groups.fn(ref, night, quarantine, swept) for ref in quarantine.units]
        placed = place_groups.fn(night, quarantine, groupings)
        made = [aggregate_cohort.fn(job, night, swept) for job in placed.jobs]

    outcome = run_round(
        federation.state(),
        federation.sealed_round(2),
        federation.config,
        open_tensors=federation.open_tensors,
        save_model=federation.add_model,
    )
    wanted = [told_of(cohort) for cohort in outcome.state.cohorts.values()]
    assert [told_of(model) for model in made] == wanted
    assert [cohort_id for cohort_id, *_ in wanted] == ["c0", "c1"]


def told_of(made: Cohort | AggregatedModel) -> tuple[str, str, str | None, float]:
    return made.cohort_id, made.model_digest, made.optimizer_digest, made.learning_rate_factor
