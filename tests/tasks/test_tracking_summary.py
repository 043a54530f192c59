from __future__ import annotations

import dataclasses
import math

from clma.config import preset_config
from clma.records import ClientStatus, CohortStatus
from clma.rows import (
    AssignmentRow,
    CohortingRow,
    CohortRow,
    DriftRow,
    Gate,
    RoundDecision,
    UpdateRow,
    Verdict,
)
from tasks.tracking.artifacts import table_texts
from tasks.tracking.summary import (
    cohort_metrics,
    flatten_settings,
    round_metrics,
    round_note,
    split_finite,
)


def cohort(cohort_id: str = "c0", **fields: object) -> CohortRow:
    values = {
        "parent": None,
        "born_round": 0,
        "status": CohortStatus.ACTIVE,
        "n_members": 2,
        "n_updates": 2,
        "n_examples": 20,
        "model_digest": "ab" * 32,
        "previous_digest": None,
        "gate": Gate.PROMOTED,
    }
    return CohortRow(cohort_id, **{**values, **fields})  # type: ignore[arg-type]


def decision(*, loss: float | None = None) -> RoundDecision:
    """p0 stays; p1 drifts into c1; p2 sent rubbish."""
    active = ClientStatus.ACTIVE
    return RoundDecision(
        7,
        updates=(
            UpdateRow("p0", Verdict.ACCEPTED, loss=loss),
            UpdateRow("p1", Verdict.ACCEPTED, loss=loss),
            UpdateRow("p2", Verdict.REJECTED, "NON_FINITE", "a|b\n<c>"),
        ),
        drift=(
            DriftRow("p0", "c0", drift_flag=False, loss=loss),
            DriftRow("p1", "c0", drift_flag=True, loss=loss),
        ),
        cohorting=(CohortingRow("p1", "c0", None, "none", 0, None, None, None, "created"),),
        assignments=(
            AssignmentRow("p0", "c0", "c0", active, "ab", 0),
            AssignmentRow("p1", "c0", "c1", active, "ab", 0),
            AssignmentRow("p2", "c0", "c0", ClientStatus.MISSING, "ab", 0),
        ),
        cohorts=(
            cohort("c0", gate=Gate.HELD, gate_detail="1 of 2 | voters"),
            cohort("c1", n_members=1, metrics={"f1": 0.5}),
            cohort("c2", status=CohortStatus.DORMANT, n_members=0),
        ),
    )


def test_a_round_is_counted() -> None:
    metrics = round_metrics(decision())

    assert (metrics["accepted"], metrics["rejected"], metrics["missing"]) == (2, 1, 0)
    assert (metrics["drifted"], metrics["quarantined"], metrics["created"]) == (1, 1, 1)
    assert (metrics["n_cohorts"], metrics["cohort_c1/n_members"]) == (2, 1)


def test_losses_that_are_not_shared_are_no_metric() -> None:
    assert "mean_loss" not in round_metrics(decision())
    assert round_metrics(decision(loss=0.25))["mean_loss"] == 0.25


def test_a_cohort_brings_its_own_metrics_and_its_members_loss() -> None:
    night = decision(loss=0.25)
    metrics = cohort_metrics(night.cohorts[1], night)

    assert (metrics["n_members"], metrics["f1"], metrics["mean_loss"]) == (1, 0.5, 0.25)


def test_the_note_tells_who_moved_and_who_was_refused() -> None:
    note = round_note("pumps", decision(), "http://prefect/1")

    assert "p1 moved from c0 to c1" in note
    assert r"p2 rejected: NON\_FINITE" in note
    assert "[Prefect run](http://prefect/1)" in note
    assert "c2" not in note


def test_the_note_tells_who_was_held_out() -> None:
    quiet = decision()
    rows = (dataclasses.replace(quiet.drift[0], server_check="outlier"), quiet.drift[1])
    night = dataclasses.replace(quiet, drift=rows)

    assert "- p0 held out of the models" in round_note("pumps", night)
    assert "held out" not in round_note("pumps", quiet)
    assert [round_metrics(n)["outliers"] for n in (night, quiet)] == [1, 0]


def test_text_from_outside_is_no_markdown() -> None:
    assert r"held (1 of 2 \| voters)" in round_note("pumps", decision())


def test_settings_become_flat_text() -> None:
    flat = flatten_settings(preset_config("pumps").model_dump(mode="json"))

    assert flat["cohorting.recall_threshold"] == "0.4"
    assert flat["privacy.share"] == "weights, flag, examples"
    assert all(len(value) <= 500 for value in flat.values())


def test_only_finite_numbers_are_metrics() -> None:
    assert split_finite({"a": 1, "b": math.nan, "c": -math.inf}) == ({"a": 1.0}, ["b", "c"])


def test_tables_can_be_read_as_text() -> None:
    lines = table_texts(decision())["cohorts"].decode().splitlines()

    assert lines[0].startswith("cohort_id,parent,born_round,status")
    assert lines[2].endswith(",f1 0.5")
