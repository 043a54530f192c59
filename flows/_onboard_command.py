"""Be ``python -m flows.onboard``: options, Prefect, the flow, tables, an exit code.

Imports prefect only inside the command, after its settings stand.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from clma.ledger.federation import Federation
from flows._commands import (
    JsonOption,
    NameOption,
    StoreOption,
    failures_in_one_line,
    orchestrated,
    run_command,
)

if TYPE_CHECKING:
    from tasks.onboarding_request import Onboarded, OnboardingRequest

__all__ = ["run_onboard_command"]


def run_onboard_command() -> NoReturn:
    """Be ``python -m flows.onboard``."""
    run_command(
        _onboard, "python -m flows.onboard --store federations/north --federation north --apply"
    )


def _onboard(
    store: StoreOption,
    federation: NameOption,
    apply: Annotated[
        bool, typer.Option("--apply", help="Open round 1 with the cohorts that are shown.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="With --apply: the fleet has cohorts; move with the next round."
        ),
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="Plants without a usable signature wait in the root cohort."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="onboarding.KEY=VALUE: show what would be with it."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="PNG of the curve and the map.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Form cohorts from the signatures that the plants sent; changes nothing without --apply."""
    from tasks.onboarding_request import OnboardingRequest, check_request

    request = OnboardingRequest(
        store,
        federation,
        tuple(settings or ()),
        apply,
        again,
        allow_missing,
        None if picture is None else str(picture.resolve()),
    )
    with failures_in_one_line(wrong_setting=2):
        opened = Federation.open(store, federation)
        # Before Prefect is up, which takes seconds.
        check_request(opened, request)
        onboarded = _run(request)
    if as_json:
        typer.echo(_json(onboarded))
        return
    from clma.report.formed_cohorts import cohort_sections
    from flows._section_screen import show_sections

    show_sections(cohort_sections(onboarded.record))
    typer.echo(f"\n{_next_step(request, onboarded, opened)}")


def _run(request: OnboardingRequest) -> Onboarded:
    typer.echo("starting Prefect ...", err=True)
    # A refusal has its line; its traceback is on the run's page.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    with orchestrated():
        from flows.onboard import onboard

        return onboard(request)


def _next_step(request: OnboardingRequest, onboarded: Onboarded, opened: Federation) -> str:
    if onboarded.in_force_from is None:
        again = " --again" if opened.state().round_num else ""
        return f"nothing was changed; the same command with --apply{again} puts it in force"
    if request.again:
        return (
            f"planned: clients move when round {onboarded.in_force_from} opens; who drifts before "
            "that stays where it goes then"
        )
    deadline = opened.state().deadline
    due = "" if deadline is None else f", due {deadline:%F %R} UTC"
    return f"round 1 is open with these cohorts{due}"


def _json(onboarded: Onboarded) -> str:
    from pydantic import TypeAdapter

    from tasks.onboarding_request import Onboarded as Kind

    adapter: TypeAdapter[Any] = TypeAdapter(Kind)
    return adapter.dump_json(onboarded).decode()
