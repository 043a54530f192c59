"""Runs whose process is gone: the server marks them as crashed after a few minutes of silence.

A run tells now and then that it lives. Nobody in Prefect draws a conclusion from its silence unless
an automation says so; this one does, once for each server.
"""

from __future__ import annotations

import datetime as dt
import os

__all__ = ["mark_lost_runs"]

NAME = "clma: a silent run has crashed"
HEARTBEAT_S = 60
SILENCE_S = 5 * HEARTBEAT_S
"""A busy server may be late with what a living run says."""


def mark_lost_runs(silence_s: float = SILENCE_S) -> None:
    """Install the automation, where the server has none of its name.

    Parameters
    ----------
    silence_s : float
        Seconds without a sign of life after which a run counts as crashed; at least 30.
    """
    # Read by the processes of the nights, which are started from here.
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", str(HEARTBEAT_S))

    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    alive = "prefect.flow-run.heartbeat"
    ends = ("Completed", "Failed", "Cancelled", "Crashed", "AwaitingRetry")
    crashed = ChangeFlowRunState(
        name=None,
        state=StateType.CRASHED,
        message=f"No sign of life for {silence_s:.0f} s: its process is gone.",
        force=False,
    )
    automation = AutomationCore(
        name=NAME,
        trigger=EventTrigger(
            after={alive},
            expect={alive, *(f"prefect.flow-run.{end}" for end in ends)},
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=dt.timedelta(seconds=silence_s),
        ),
        actions=[crashed],
    )
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(NAME):
            client.create_automation(automation)
