from __future__ import annotations

from pathlib import Path

import pytest

from clma.config import override_config
from clma.ledger.federation import Federation
from clma.onboarding.plan import plan_cohorts
from clma.onboarding.record import CohortRecord, record_of
from clma.report.formed_cohorts import N_LINES, N_NAMED, cohort_sections
from clma.report.page import to_markdown
from tests.clma.onboarding.fleet import found, onboard, send, send_all, signature


def page(record: CohortRecord) -> str:
    return to_markdown("Cohorts", cohort_sections(record))


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return found(tmp_path / "store", tmp_path)


def test_everybody_stands_somewhere_once(fleet: Federation) -> None:
    send_all(fleet, leave_out=("p2",))

    text = page(record_of(plan_cohorts(fleet)))

    assert "| c0 | 3 |" in text
    assert "| c1 | 2 |" in text
    assert "p0, p1, p3" in text
    assert "client 'p2': no signature has come" in text


def test_the_chosen_number_is_marked_in_the_curve(fleet: Federation) -> None:
    send_all(fleet)

    assert "| 2 (chosen) |" in page(record_of(plan_cohorts(fleet)))


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path, 2 * N_NAMED + N_LINES)
    for number in range(N_NAMED + 3):
        send(fleet, f"p{number}", signature("north", number))
    config = override_config(fleet.config, ["onboarding.n_groups=1"])

    text = page(record_of(plan_cohorts(fleet, config)))

    assert "and 3 more |" in text
    assert f"and {N_NAMED - 3} more" in text.partition("Left out")[2]


def test_new_cohort_says_whose_model_it_starts_from(fleet: Federation) -> None:
    for number in range(6):
        send(fleet, f"p{number}", signature("north", number))
    onboard(fleet)
    for number in (4, 5):
        send(fleet, f"p{number}", signature("south", number))

    text = page(record_of(plan_cohorts(fleet)))

    assert "its own (4 stay)" in text
    assert "| new-1 | 2 |" in text
    assert "2 of them are in another one now" in text


def test_lack_of_signal_is_a_warning(fleet: Federation) -> None:
    for number in range(6):
        send(fleet, f"p{number}", signature("north", number, n_features=4))
    config = fleet.config
    strict = config.onboarding.model_copy(update={"alike_within": 0.0, "silhouette_floor": 1.0})

    record = record_of(plan_cohorts(fleet, config.model_copy(update={"onboarding": strict})))

    assert "Warning: no signal" in page(record)
