"""Find the round that a night is about."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from prefect import task

from clma.errors import RoundHeldError, RoundStateError
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.keys import inbox_prefix
from clma.records import FederationState, Phase
from tasks.night import IO_RETRIES, PINNED_TO_RUN

__all__ = ["ChosenRound", "choose_round"]


@dataclass(frozen=True, slots=True)
class ChosenRound:
    """The round to close.

    Parameters
    ----------
    round_num : int or None
        None: nothing is due.
    opened_entry : str
        SHA-256 of the ledger entry that opened it; tells it from a round of the same number in a
        federation that was made anew in the same place.
    detail : str
        One line for the operator.
    """

    round_num: int | None
    opened_entry: str
    detail: str


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="choose round")
def choose_round(
    store: str,
    federation: str,
    now: bool,
    round_num: int | None = None,
    not_after: int | None = None,
) -> ChosenRound:
    """Choose the round that is due, or was left half done; stick to it when the run is retried.

    First of all sweeps up after a night that was killed, also if nothing is due any more.

    Parameters
    ----------
    store, federation : str
    now : bool
        Close the open round before its deadline, if any client has submitted. One that nobody has
        answered stays open: the night before may have been killed right after it opened the round,
        and whoever starts that night again does not mean this one.
    round_num : int, optional
        The round to run instead; it has to be the newest one.
    not_after : int, optional
        The newest round when the night was asked for: one that another night opened since then is
        left open.

    Raises
    ------
    RoundStateError
        If `round_num` is not the newest round.
    RoundHeldError
        If another night closed the round `not_after` and held it.
    """
    opened = Federation.open(store, federation)
    opened.sweep_drafts()
    state = opened.state()
    if round_num is not None and round_num != state.round_num:
        raise RoundStateError(
            f"round {round_num} of {federation!r} cannot be run: the newest is {state.round_num}"
        )
    if not_after is not None and not_after < state.round_num:
        return ChosenRound(None, "", _closed_by_another(opened, state, not_after))
    answered = round_num is not None or bool(opened.store.list(inbox_prefix(state.round_num)))
    detail = _why_not_due(state, now or round_num is not None, answered)
    if detail is not None:
        return ChosenRound(None, "", detail)
    digest = opened.entry_digest(EntryKind.ROUND_OPENED, state.round_num)
    return ChosenRound(
        state.round_num, digest or "", f"round {state.round_num} was {state.phase.value}"
    )


def _closed_by_another(opened: Federation, state: FederationState, round_num: int) -> str:
    held = opened.journal.find(EntryKind.ROUND_HELD, round_num)
    if held is not None:
        raise RoundHeldError(str(held.payload["reason"]))
    due = _why_not_due(state, now=False, answered=False) or f"round {state.round_num} is due"
    return f"another night opened round {state.round_num} meanwhile; {due}"


def _why_not_due(state: FederationState, now: bool, answered: bool) -> str | None:
    if state.phase is Phase.CREATED:
        return "no round was opened yet"
    if state.phase is not Phase.OPEN or (now and answered):
        return None
    if state.deadline is not None and dt.datetime.now(dt.UTC) >= state.deadline:
        return None
    due = (
        "when it is closed by hand" if state.deadline is None else f"at {state.deadline:%F %R} UTC"
    )
    silent = "" if answered or not now else "; nobody has submitted yet"
    return f"round {state.round_num} is due {due}{silent}"
