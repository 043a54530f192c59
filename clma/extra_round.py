"""Whether a round is to be closed before its time, because plants ask for it.

A round is open all day, and the night closes it. A plant whose deployed model became bad at noon
need not wait: it trains, sends its update, and asks. Only those who ask have to send; whoever has
sent takes part, a cohort that nobody voted in keeps its model, and the next round is due when this
one was, so that the night comes as every night.

After the public description of CLMA (doi 10.1145/3703323.3703341), Algorithm 4: a flag on the
inference stream asks for a round. Departure: requests are counted, and the round waits for the
updates of those who asked.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass

from clma.client.access import Terms, check_round_open
from clma.client.delivery import find_own
from clma.client.direct import find_client
from clma.errors import InvalidUpdateError
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.inbox import expected_update
from clma.ledger.keys import entry_key, inbox_prefix
from clma.ledger.requests import OpenRequest, open_requests
from clma.records import FederationState, Phase

__all__ = ["ExtraRound", "look_at_requests"]


@dataclass(frozen=True, slots=True)
class ExtraRound:
    """What the requests for the open round come to.

    Parameters
    ----------
    round_num : int
        The open round; 0 if none is.
    is_due : bool
        It is to be closed now.
    asked : tuple of client_id
        Who asks, sorted.
    detail : str
        One line for the operator.
    """

    round_num: int
    is_due: bool
    asked: tuple[str, ...]
    detail: str


def look_at_requests(federation: Federation, *, now: dt.datetime) -> ExtraRound:
    """Decide whether the open round is to be closed early.

    Parameters
    ----------
    federation : Federation
    now : datetime
        With a zone.

    Returns
    -------
    ExtraRound
        Due if enough clients ask, the round was open for long enough, those who ask have sent their
        updates or were waited for, and there is a quorum. A round that is past its deadline is the
        night's.
    """
    state = federation.state()
    if state.phase is not Phase.OPEN:
        return ExtraRound(0, False, (), f"round {state.round_num} is {state.phase.value}")
    requests = open_requests(federation.store, state, federation.config_of(state))
    asked = tuple(r.request.client_id for r in requests)
    why_not = _why_not(federation, state, requests, now)
    names = ", ".join(asked) or "nobody"
    detail = f"round {state.round_num}: asked for by {names}; " + (why_not or "closed early")
    return ExtraRound(state.round_num, why_not is None, asked, detail)


def _why_not(
    federation: Federation,
    state: FederationState,
    requests: tuple[OpenRequest, ...],
    now: dt.datetime,
) -> str | None:
    settings = federation.config_of(state).round
    if not requests or len(requests) < settings.extra_requests:
        return f"{len(requests)} of {settings.extra_requests} requests"
    if state.deadline is not None and now >= state.deadline:
        return "it is due by itself"
    earliest = _opened_at(federation, state) + dt.timedelta(hours=settings.extra_after_hours)
    if now < earliest:
        return f"not closed before {earliest:%F %R} UTC"
    sent = _senders(federation, state)
    asked = [r.request.client_id for r in requests]
    missing = [c for c in asked if c not in sent or not _has_sent(federation, state, c)]
    until = min(r.received_at for r in requests) + dt.timedelta(hours=settings.extra_wait_hours)
    if len(missing) == len(requests) or (missing and now < until):
        return f"no update yet of {', '.join(missing)}"
    if len(sent) < settings.quorum:
        return f"{len(sent)} updates, round.quorum is {settings.quorum}"
    return None


def _opened_at(federation: Federation, state: FederationState) -> dt.datetime:
    """Return when a round was opened, by the store's clock."""
    entry = federation.journal.find(EntryKind.ROUND_OPENED, state.round_num)
    number = 0 if entry is None else entry.number
    return federation.store.info(entry_key(number)).modified


def _senders(federation: Federation, state: FederationState) -> set[str]:
    keys = federation.store.list(inbox_prefix(state.round_num))
    folders = {key.split("/")[2] for key in keys if key.endswith(".json")}
    return folders & state.clients.keys()


def _has_sent(federation: Federation, state: FederationState, client_id: str) -> bool:
    """Tell whether a message of a client may be accepted; the seal looks at its tensors."""
    config = federation.config_of(state)
    expected = expected_update(state, find_client(state, client_id), config, federation.spec)
    message = find_own(federation.store, state.round_num, client_id, expected)
    if message is None:
        return False
    with contextlib.suppress(InvalidUpdateError):
        check_round_open(message, Terms(expected, state.phase))
        return True
    return False
