"""Forget a client: remove its updates, rows and artifacts, and say which models its data went into.

What stays is a tombstone: the ledger entry that says so. Older entries are redacted, each under the
digest that this entry names, so the chain still verifies from its first byte. Tables and sealed
inputs are rewritten without the client. Everything that will change is worked out first and written
into that one entry; carrying it out can be repeated until it is done.

Models that were made with the client's update stay as they are, or are made again without it
(`reaggregate`). Either way, what other clients trained from such a model before is not undone: that
would take training anew. What a server optimiser remembers of the cohorts that the client voted in
is dropped in any case, and models are made again without it.
"""

from __future__ import annotations

import datetime as dt

from clma.errors import ConflictError
from clma.forget.influence import InfluencedModel
from clma.forget.plan import ForgetPlan, Forgetting, plan_of
from clma.forget.rewrite import carry_out, digest_of
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.federation import Federation

__all__ = ["ForgetPlan", "InfluencedModel", "forget_client", "plan_forget"]

_MAX_ATTEMPTS = 20
"""Other writers that may be first while the changes are worked out."""


def plan_forget(federation: Federation, client_id: str, *, reaggregate: bool = False) -> ForgetPlan:
    """Say what forgetting a client would change; nothing is written.

    Parameters
    ----------
    federation : Federation
    client_id : str
    reaggregate : bool
        Make the models that its update went into again without it.

    Raises
    ------
    UnknownClientError
        If the client is not registered.
    RoundStateError
        If a round is sealed and not decided.
    """
    return Forgetting(federation, client_id, reaggregate, digest_of).plan()


def forget_client(
    federation: Federation,
    client_id: str,
    *,
    reaggregate: bool = False,
    now: dt.datetime | None = None,
) -> ForgetPlan:
    """Forget a client, or finish forgetting it where an earlier attempt was killed.

    Parameters
    ----------
    federation : Federation
    client_id : str
    reaggregate : bool
        Make the models that its update went into again without it.
    now : datetime, optional
        With a zone; only written down.

    Returns
    -------
    ForgetPlan
        What was changed.

    Raises
    ------
    UnknownClientError
        If the client is not registered and was never forgotten.
    RoundStateError
        If a round is sealed and not decided.
    ConflictError
        If the ledger is changed by others again and again.
    """
    for _ in range(_MAX_ATTEMPTS):
        entries = federation.entries()
        unfinished = _newest_forgetting(entries, client_id)
        if unfinished is not None and client_id not in federation.state().clients:
            carry_out(federation, unfinished)
            return plan_of(unfinished)
        work = Forgetting(federation, client_id, reaggregate, federation.add_model)
        plan = work.plan()
        try:
            federation.journal.append(
                EntryKind.CLIENT_FORGOTTEN, work.payload(plan), len(entries), now
            )
        except ConflictError:
            continue
        carry_out(federation, federation.entries()[len(entries)])
        return plan
    raise ConflictError(f"{federation.store.url}: the ledger was changed again and again")


def _newest_forgetting(entries: tuple[Entry, ...], client_id: str) -> Entry | None:
    for entry in reversed(entries):
        if entry.kind is not EntryKind.CLIENT_FORGOTTEN:
            continue
        if entry.payload["forgotten"]["client_id"] == client_id:
            return entry
    return None
