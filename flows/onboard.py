"""Form a fleet's cohorts from signatures of its data, before anybody trains, or anew.

    python -m flows.onboard --store federations/north --federation north

Shows what would be; with ``--apply`` round 1 opens with these cohorts.
"""

from __future__ import annotations

if (
    __name__ == "__main__"
):  # Prefect reads its settings when it is imported: the command goes first.
    from flows._onboard_command import run_onboard_command

    run_onboard_command()

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from clma.report.formed_cohorts import cohort_sections
from clma.report.page import to_markdown
from tasks.form_cohorts import form_cohorts
from tasks.onboarding_request import Onboarded, OnboardingRequest
from tasks.put_in_force import put_in_force

__all__ = ["onboard"]


@flow(name="onboard", flow_run_name="cohorts of {request.federation}")
def onboard(request: OnboardingRequest) -> Onboarded:
    """Collect signatures, form cohorts, show them, and put them in force if that was asked for.

    Parameters
    ----------
    request : OnboardingRequest

    Raises
    ------
    ClmaError
        See `tasks.form_cohorts` and `tasks.put_in_force`; nothing is changed then.
    """
    formed = form_cohorts(request)
    page = to_markdown("Cohorts from signatures", cohort_sections(formed.record))
    create_markdown_artifact(page, key="cohorts", description="who starts with whom, and why")
    if formed.ref is None:
        return Onboarded(formed.record, None)
    round_num = put_in_force(request.store, request.federation, formed.ref, request.again)
    return Onboarded(formed.record, round_num)
