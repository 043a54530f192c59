from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clma.errors import ClmaError, InvalidConfigError, RoundStateError
from tasks.onboarding_request import OnboardingRequest, check_request
from tests.clma.onboarding.fleet import found, onboard, send_all


def refusal(store: Path, tmp_path: Path, *, has_cohorts: bool, **asked: Any) -> ClmaError | None:
    fleet = found(store, tmp_path)
    send_all(fleet)
    if has_cohorts:
        onboard(fleet)
    try:
        check_request(fleet, OnboardingRequest(str(store), "fleet", **asked))
    except (InvalidConfigError, RoundStateError) as error:
        return error
    return None


@pytest.mark.parametrize(
    ("asked", "has_cohorts", "says"),
    [
        ({"settings": ("round.quorum=3",)}, False, "wanted onboarding.KEY=VALUE"),
        ({"settings": ("onboarding.center=moon",)}, False, "onboarding.center"),
        ({"settings": ("onboarding.n_groups=2",), "apply": True}, False, "clma configure --set"),
        ({"apply": True, "again": True}, False, "no cohorts to form anew"),
        ({"apply": True}, True, "give --apply --again"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tmp_path: Path, asked: dict[str, Any], has_cohorts: bool, says: str
) -> None:
    error = refusal(tmp_path / "store", tmp_path, has_cohorts=has_cohorts, **asked)

    assert says in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("asked", "has_cohorts"),
    [
        ({}, False),
        ({}, True),
        ({"again": True}, False),
        ({"settings": ("onboarding.n_groups=2",)}, True),
        ({"apply": True}, False),
        ({"apply": True, "again": True}, True),
    ],
)
def test_what_can_be_done_is_not(tmp_path: Path, asked: dict[str, Any], has_cohorts: bool) -> None:
    assert refusal(tmp_path / "store", tmp_path, has_cohorts=has_cohorts, **asked) is None
