"""Whatever the method, the tasks of a night decide what a round in one process decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prefect.logging import disable_run_logger

from clma.config import preset_config, requirements
from clma.ledger.federation import Federation
from clma.night import close_round, open_next_round
from clma.records import FederationState
from clma.round import run_round
from clma.rows import RoundDecision
from tasks.aggregate_cohort import aggregate_cohort
from tasks.choose_round import ChosenRound
from tasks.decide_round import decide_round
from tasks.form_groups import form_groups
from tasks.night import load_stage
from tasks.place_groups import place_groups
from tasks.quarantine_clients import quarantine_clients
from tasks.seal_round import seal_round
from tasks.sweep_updates import sweep_updates
from tests.clma.ledger.fleet import NOW, drop, written

CLIENTS = ("p0", "p1", "p2", "p3", "p4", "p5")


def found(folder: Path, preset: str) -> Federation:
    """Make a federation whose second round waits: half of the plants turn round, and choose."""
    rng = np.random.default_rng(0)
    start = {"w": rng.normal(size=40).astype(np.float32)}
    base = written(folder / "base.safetensors", start)
    config = preset_config(
        "fleet",
        preset,
        identity={"updates": "unsigned"},
        privacy={"share": sorted({"weights", *requirements(preset)})},
        cohorting={"warm_up_rounds": 0},
    )
    federation = Federation.create(folder / "store", config, base, CLIENTS, now=NOW)
    open_next_round(federation, now=NOW)
    for round_num in (1, 2):
        state = federation.state()
        for i, client_id in enumerate(CLIENTS):
            turned = round_num == 2 and i > 2
            way = -1.0 if turned else 1.0
            losses = {c.model_digest: 0.5 + 0.01 * n for n, c in enumerate(state.cohorts.values())}
            drop(
                federation,
                client_id,
                {"w": (start["w"] + way + rng.normal(0, 0.01, 40)).astype(np.float32)},
                drift_flag=turned,
                base_digest=state.clients[client_id].serving_digest,
                losses=losses,
            )
        if round_num == 1:
            close_round(federation, now=NOW, force=True)
    return federation


@pytest.mark.parametrize("preset", ["clma", "ifca", "feddrift", "feddrift-eager", "cfl", "local"])
def test_tasks_decide_what_one_process_decides(tmp_path: Path, preset: str) -> None:
    federation = found(tmp_path, preset)
    with disable_run_logger():
        night = seal_round.fn(federation.store.url, "fleet", ChosenRound(2, "", ""))
        quarantine = quarantine_clients.fn(night)
        swept = [sweep_updates.fn(shard, night, quarantine) for shard in quarantine.shards]
        groupings = [form_groups.fn(ref, night, quarantine, swept) for ref in quarantine.units]
        placed = place_groups.fn(night, quarantine, groupings)
        made = [aggregate_cohort.fn(job, night, swept) for job in placed.jobs]
        decided = decide_round.fn(night, quarantine, swept, placed, made, None)

    outcome = run_round(
        federation.state_at_seal(2),
        federation.sealed_round(2),
        federation.config,
        open_tensors=federation.open_tensors,
        save_model=federation.add_model,
    )
    assert load_stage(federation, decided.decision, RoundDecision) == outcome.decision
    assert load_stage(federation, decided.after, FederationState) == outcome.state
