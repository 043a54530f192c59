"""The demo on recorded plant data, where the data is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clma.ledger.federation import Federation
from clma.ledger.tables import read_rows

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("CLMA_DATA_DIR", ROOT.parent / "shared" / "data"))
PRONTO = FOLDER / "pronto" / "pronto_process_1hz.parquet"

SERVERS = {"PREFECT_HOME", "PREFECT_API_URL", "MLFLOW_TRACKING_URI"}
"""The demo is to make its own; tests that ran before in this process may have left theirs."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PRONTO.exists(), reason=f"no recorded data at {PRONTO}"),
]


def test_pronto_runs_through_the_same_flows(tmp_path: Path) -> None:
    """Three real rounds; in the third, two clients drift and are found."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "flows.demo", "--json", "--rounds", "3", "--seed", "3"),
            *("--data", str(PRONTO), "--recipe", "pronto", "--out", str(tmp_path)),
        ],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in SERVERS},
        stdout=subprocess.PIPE,
        timeout=280,
        check=True,
    )
    facts = json.loads(run.stdout)
    store = Federation.open(facts["store"]).store

    assert facts["recipe"] == "pronto"
    assert facts["n_cohorts"] > 1
    quarantined = {row.client_id for row in read_rows(store, 3, "cohorting")}
    assert {"plant-03", "plant-04"} <= quarantined
