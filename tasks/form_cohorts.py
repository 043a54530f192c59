"""Form cohorts from the signatures that the plants sent."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger, task

from clma.config import override_config
from clma.errors import NotEnoughClientsError
from clma.ledger.durable_file import replace_files
from clma.ledger.federation import Federation
from clma.onboarding.carry_out import write_plan
from clma.onboarding.plan import NEW, CohortPlan, plan_cohorts
from clma.onboarding.record import record_of
from clma.records import FederationState, cohort_number
from clma.report.figures import png_bytes
from clma.report.onboarding import onboarding_figure
from tasks.night import IO_RETRIES, PINNED_TO_RUN
from tasks.onboarding_request import FormedCohorts, OnboardingRequest, check_request

__all__ = ["form_cohorts"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="form cohorts of {request.federation}")
def form_cohorts(request: OnboardingRequest) -> FormedCohorts:
    """Form cohorts; only where they are to be put in force is anything written to the store.

    Raises
    ------
    InvalidConfigError, PolicyError, RoundStateError
        If the request cannot be carried out.
    InvalidUpdateError
        If no usable signature has come, or their encoders are a tie.
    NotEnoughClientsError
        If some clients have no usable signature and that is not allowed.
    """
    federation = Federation.open(request.store, request.federation)
    check_request(federation, request)
    config = override_config(federation.config, request.settings)
    plan = plan_cohorts(federation, config, keep=request.apply)
    if request.apply and not request.allow_missing:
        _check_complete(plan)
    if request.picture is not None:
        _draw(plan, federation.state(), Path(request.picture))
    get_run_logger().info(
        "%d cohorts of %d clients; %d without a signature, %d refused",
        plan.onboarding.choice.n_groups,
        len(plan.after),
        len(plan.collected.missing),
        len(plan.collected.refused),
    )
    ref = write_plan(federation, plan) if request.apply else None
    return FormedCohorts(record_of(plan), ref)


def _check_complete(plan: CohortPlan) -> None:
    refused, missing = plan.collected.refused, plan.collected.missing
    n_lacking = len(refused) + len(missing)
    if not n_lacking:
        return
    first = next(iter(refused.values()), "") or f"client '{missing[0]}': none has come"
    raise NotEnoughClientsError(
        f"{n_lacking} of {n_lacking + len(plan.after)} clients have no usable signature, the first "
        f"is {first}; --allow-missing lets them wait in the root cohort"
    )


def _draw(plan: CohortPlan, state: FederationState, path: Path) -> None:
    n_known = 1 + max(cohort_number(c) for c in state.cohorts)
    shown = {
        c: f"c{n_known + int(c.removeprefix(NEW)) - 1}" if c.startswith(NEW) else c
        for c in plan.cohorts
    }
    figure = onboarding_figure(
        plan.onboarding.found.distances,
        plan.onboarding.choice,
        [shown[plan.after[c]] for c in plan.onboarding.client_ids],
        title=plan.federation,
    )
    replace_files({path: png_bytes(figure)})
