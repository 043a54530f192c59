"""A night without an orchestrator: seal, decide, commit, open the next round, in this process.

What the Prefect flow does task by task, for scripts, tests and simulations; the bytes are the same.

Examples
--------
>>> import datetime as dt, tempfile, pathlib
>>> import numpy as np
>>> from clma.config import preset_config
>>> from clma.parameters.tensor_file import serialize_tensors
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> base = folder / "base.safetensors"
>>> _ = base.write_bytes(serialize_tensors({"w": np.zeros(2, np.float32)}))
>>> federation = Federation.create(folder / "store", preset_config("example"), base, ["plant-1"])
>>> open_next_round(federation, now=dt.datetime.now(dt.UTC)).round_num
1
"""

from __future__ import annotations

import datetime as dt

from clma.cohorting.opening import check_source
from clma.errors import RoundHeldError
from clma.ledger.federation import Federation
from clma.next_round import open_next_round
from clma.round import RoundOutcome, run_round
from clma.signatures.signature import SignatureSource

__all__ = ["close_round", "open_next_round"]


def close_round(
    federation: Federation,
    *,
    now: dt.datetime,
    force: bool = False,
    signature_of: SignatureSource | None = None,
    keep_deadline: bool = False,
) -> RoundOutcome:
    """Seal the open round, decide it, commit the decision and open the next round.

    Parameters
    ----------
    federation : Federation
    now : datetime
        With a zone.
    force : bool
        Close before the deadline.
    signature_of : callable, optional
        As for `open_next_round`.
    keep_deadline : bool
        As for `open_next_round`.

    Raises
    ------
    InvalidConfigError
        If the method needs signatures and there are none; nothing is sealed then.
    RoundStateError
        If no round is due.
    RoundHeldError
        If too few clients took part: the round is recorded as held, the next one is open.
    """
    check_source(federation.config, signature_of)
    sealed = federation.seal_round(now=now, force=force)
    state = federation.state_at_seal(sealed.round_num)
    try:
        outcome = run_round(
            state,
            sealed,
            federation.config_of(state),
            open_tensors=federation.open_tensors,
            save_model=federation.add_model,
        )
    except RoundHeldError as error:
        federation.hold_round(str(error), now=now)
        open_next_round(federation, now=now, signature_of=signature_of, keep_deadline=keep_deadline)
        raise
    federation.commit_round(outcome.decision, outcome.state, now=now)
    open_next_round(federation, now=now, signature_of=signature_of, keep_deadline=keep_deadline)
    return outcome
