"""Open the next round, with what the configured method changes then.

Light enough for `clma init`, which runs where nothing but the base install is.
"""

from __future__ import annotations

import datetime as dt

from clma.cohorting.opening import opening_moves
from clma.ledger.federation import Federation
from clma.records import FederationState, Phase
from clma.signatures.signature import SignatureSource

__all__ = ["open_next_round"]


def open_next_round(
    federation: Federation,
    *,
    now: dt.datetime,
    signature_of: SignatureSource | None = None,
    keep_deadline: bool = False,
) -> FederationState:
    """Open the next round, with what the configured method changes then.

    Parameters
    ----------
    federation : Federation
    now : datetime
        With a zone.
    signature_of : callable, optional
        For methods that place clients by signatures of their data. Default: what plants sent.

    keep_deadline : bool
        The newest round was closed before its time: the next one is due when that one was.

    Raises
    ------
    InvalidConfigError
        If the method needs signatures that plants cannot send.
    RoundStateError
        If the newest round is sealed and not decided, or the first cohorts are to be formed from
        signatures and were not yet.
    """
    state, config = federation.state(), federation.config
    if state.phase is Phase.OPEN:
        return federation.open_round(now=now)
    if config.onboarding.method != "none" and signature_of is None:
        # SciPy comes with it, and rounds are opened where only the base install is.
        from clma.onboarding.opening import moves_from_store

        moves, evidence = moves_from_store(federation, state, config)
        return federation.open_round(
            now=now, moves=moves, onboarding=evidence, keep_deadline=keep_deadline
        )
    moves = opening_moves(
        state,
        config,
        state.round_num + 1,
        open_tensors=federation.open_tensors,
        save_model=federation.add_model,
        signature_of=signature_of,
    )
    return federation.open_round(now=now, moves=moves, keep_deadline=keep_deadline)
