"""Mark a run whose process is gone as crashed, so that it can be retried.

    python -m deployments.mark_crashed RUN_ID

A run that was killed stays Running in Prefect: nobody is left to say otherwise. Retry is offered
only for runs that ended, so the operator, who knows that the process is gone, says it.
"""

from __future__ import annotations

import sys
from typing import Annotated
from uuid import UUID

import typer

__all__ = ["mark_crashed"]


def mark_crashed(run_id: UUID) -> str:
    """Force a flow run into the state Crashed; return its name.

    Raises
    ------
    prefect.exceptions.ObjectNotFound
        If the server knows no such run.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import State
    from prefect.states import Crashed

    state: State[None] = Crashed(message="Marked by an operator: the process is gone.")
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
        client.set_flow_run_state(run_id, state, force=True)
    return run.name


def _main(
    run_id: Annotated[UUID, typer.Argument(help="Id of the flow run, as in the page's address.")],
) -> None:
    """Mark a run whose process is gone as crashed, so that it can be retried."""
    from prefect.exceptions import ObjectNotFound

    try:
        name = mark_crashed(run_id)
    except ObjectNotFound:
        typer.echo(f"failed: the Prefect server knows no flow run {run_id}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{name} is marked crashed; retry it")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(epilog="Example: python -m deployments.mark_crashed 3f0c9a5e-...")(_main)
    sys.exit(app())
