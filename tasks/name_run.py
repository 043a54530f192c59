"""Give a flow run the name of its round."""

from __future__ import annotations

from uuid import UUID

from prefect import task
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.choose_round import ChosenRound
from tasks.night import IO_RETRIES, PINNED_TO_RUN

__all__ = ["name_run"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="name this run")
def name_run(federation: str, chosen: ChosenRound) -> str:
    """Rename the flow run to federation and round, which are not known before it starts."""
    name = f"{federation} round {chosen.round_num:03d}"
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run_id=UUID(flow_run.get_id()), name=name)
    return name
