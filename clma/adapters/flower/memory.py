"""Keep a federation in memory small: of its past only what later rounds look at."""

from __future__ import annotations

from clma.ledger.federation import Federation
from clma.ledger.keys import updates_prefix
from clma.records import FederationState, model_ref

__all__ = ["forget_past"]


def forget_past(federation: Federation, round_num: int) -> None:
    """Delete what no later round looks at: updates of this round, and models out of use."""
    store, state = federation.store, federation.state()
    kept = {model_ref(digest).path for digest in _models_in_use(state)}
    for key in (*store.list(updates_prefix(round_num)), *store.list("models")):
        if key not in kept:
            store.delete(key)
    store.close()


def _models_in_use(state: FederationState) -> set[str]:
    digests = {client.serving_digest for client in state.clients.values()}
    for cohort in state.cohorts.values():
        digests |= {
            cohort.model_digest,
            cohort.origin_digest or "",
            cohort.optimizer_digest or "",
            cohort.birth_digest or "",
        }
    return digests | {state.consensus_digest or ""}
