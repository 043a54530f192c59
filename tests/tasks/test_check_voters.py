"""The task holds out whom a round in one process holds out, and leaves all else as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prefect.logging import disable_run_logger

from clma.config import preset_config
from clma.drift.quarantine import Triage
from clma.ledger.federation import Federation
from clma.night import close_round
from clma.round import run_round
from clma.sweep.columns import BLOCK, MIN_BLOCKS
from tasks.aggregate_cohort import aggregate_cohort
from tasks.check_voters import check_voters
from tasks.choose_round import ChosenRound
from tasks.form_groups import form_groups
from tasks.night import load_stage
from tasks.place_groups import place_groups
from tasks.quarantine_clients import VARIABLE, quarantine_clients
from tasks.seal_round import seal_round
from tasks.sweep_updates import sweep_updates
from tests.clma.ledger.fleet import NOW, drop, written

N_COLUMNS = 3 * MIN_BLOCKS * BLOCK
"""So many that there are stripes to divide, and that only some are looked at."""


def found(folder: Path, *, liar: bool) -> Federation:
    """Make a federation in whose second round p0 may go back where the others came from."""
    rng = np.random.default_rng(0)
    trend = rng.normal(size=N_COLUMNS)

    def model(step: float) -> dict[str, np.ndarray]:
        return {"w": (step * trend + rng.normal(0, 0.3, N_COLUMNS)).astype(np.float32)}

    config = preset_config("fleet", identity={"updates": "unsigned"})
    base = written(folder / "base.safetensors", model(0.0))
    ids = [f"p{i}" for i in range(7)]
    federation = Federation.create(folder / "store", config, base, ids, now=NOW)
    federation.open_round(now=NOW)
    for round_num in (1, 2):
        for i, client_id in enumerate(ids):
            steps = 0.0 if liar and (round_num, i) == (2, 0) else float(round_num)
            drop(federation, client_id, model(steps), drift_flag=round_num == 2 and i == 6)
        if round_num == 1:
            close_round(federation, now=NOW, force=True)
    return federation


@pytest.mark.parametrize("n_shards", [1, 3])
def test_any_number_of_shards_makes_the_models_of_one_process(
    tmp_path: Path, n_shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = found(tmp_path, liar=True)
    monkeypatch.setenv(VARIABLE, str(n_shards))
    with disable_run_logger():
        night = seal_round.fn(federation.store.url, "fleet", ChosenRound(2, "", ""))
        quarantine = check_voters.fn(night, quarantine_clients.fn(night))
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
    wanted = {c.cohort_id: c.model_digest for c in outcome.state.cohorts.values()}
    assert {m.cohort_id: m.model_digest for m in made} == wanted
    assert outcome.decision.drift[0].server_check == "outlier"


@pytest.mark.parametrize("liar", [True, False])
def test_the_quarantine_changes_only_where_somebody_is_held_out(tmp_path: Path, liar: bool) -> None:
    federation = found(tmp_path, liar=liar)
    with disable_run_logger():
        night = seal_round.fn(federation.store.url, "fleet", ChosenRound(2, "", ""))
        quarantine = quarantine_clients.fn(night)
        checked = check_voters.fn(night, quarantine)

    outliers = load_stage(federation, checked.triage, Triage).outliers
    assert (outliers, checked == quarantine) == ((("p0",), False) if liar else ((), True))


def two_alike(folder: Path) -> Federation:
    """Make a federation whose c2 went the way of c1, and in round 5 for the second night."""
    config = preset_config(
        "fleet",
        identity={"updates": "unsigned"},
        cohorting={"merge": True, "recall": False},
        drift={"confirm": False},
    )
    base = written(folder / "base.safetensors", {"w": np.zeros(2, np.float32)})
    federation = Federation.create(folder / "store", config, base, ["p0", "p1", "p2"], now=NOW)
    federation.open_round(now=NOW)
    left = {"p0": 9, "p1": 2, "p2": 3}
    for round_num in range(1, 6):
        for client_id, first in left.items():
            way = [3.0, 0.1 * round_num] if round_num >= first else [0.0, 0.01]
            drop(
                federation,
                client_id,
                {"w": np.array(way, np.float32)},
                drift_flag=round_num == first,
            )
        if round_num < 5:
            close_round(federation, now=NOW, force=True)
    return federation


def test_task_merges_what_a_round_in_one_process_merges(tmp_path: Path) -> None:
    federation = two_alike(tmp_path)
    with disable_run_logger():
        night = seal_round.fn(federation.store.url, "fleet", ChosenRound(5, "", ""))
        checked = check_voters.fn(night, quarantine_clients.fn(night))

    outcome = run_round(
        federation.state(),
        federation.sealed_round(5),
        federation.config,
        open_tensors=federation.open_tensors,
        save_model=federation.add_model,
    )
    assert load_stage(federation, checked.triage, Triage).merged == {"c2": "c1"}
    assert outcome.state.cohorts["c2"].merged_into == "c1"
