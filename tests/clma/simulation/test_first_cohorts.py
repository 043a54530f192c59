"""Cohorts from signatures, and drift from there on, on recorded runs that were never alike.

Each of the sixteen runs has faults of its own, so class shares differ from the first round on. The
groups of the campaigns are no one's truth of the schedule, which only knows the scripted drift;
what counts is how well the clients are served.
"""

from __future__ import annotations

import pytest

from clma.cohorting.fmcl import form_cohorts
from clma.config import OnboardingConfig
from clma.records import FederationState
from clma.signatures.fmcl import sign_by_class_means
from clma.simulation.cells import Cell, CellResult
from clma.simulation.cranfield import FILE_NAME, cranfield_fleet
from clma.simulation.run_cell import run_cell
from clma.simulation.signatures import fleet_encoder
from tests.clma.shelf import one_cohort
from tests.clma.simulation.recorded import DATA_DIR, needs

pytestmark = needs(f"cranfield2015/{FILE_NAME}")


@pytest.fixture
def nobody_placed() -> FederationState:
    return one_cohort("m0", [], round_num=0)


@pytest.mark.parametrize("seed", [5, 6])
def test_runs_of_one_campaign_start_together(seed: int, nobody_placed: FederationState) -> None:
    fleet = cranfield_fleet(DATA_DIR / "cranfield2015", "stagger", seed)
    encoder = fleet_encoder(fleet)
    signatures = {
        c: sign_by_class_means(*fleet.training_windows(c, 1), encoder) for c in fleet.client_ids
    }

    cohorts = form_cohorts(nobody_placed, signatures, OnboardingConfig(method="fmcl")).cohorts

    for campaign in ("2", "3", "4"):
        assert len({cohorts[c] for c in fleet.client_ids if c.startswith(f"run-{campaign}.")}) == 1
    assert len(set(cohorts.values())) > 2


@pytest.mark.slow
def test_signatures_at_the_start_and_drift_flags_after_beat_either_alone() -> None:
    def live(preset: str) -> CellResult:
        return run_cell(Cell("cranfield/stagger", preset, 5, n_rounds=5), DATA_DIR)

    both, signatures, flags = (live(p).row for p in ("fmcl-clma", "fmcl", "clma"))

    for alone in (signatures, flags):
        assert both.drifted_f1 > alone.drifted_f1
        assert both.stationary_f1 > alone.stationary_f1
