"""Test every client's model on held-out data of the concept that holds there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from clma.simulation.fleet import Fleet
from clma.simulation.scores import ClientScore, macro_auc_roc, macro_f1, softmax
from clma.simulation.training import class_logits

__all__ = ["score_clients"]


def score_clients(
    fleet: Fleet,
    round_num: int,
    served: Mapping[str, str],
    models: Mapping[str, Mapping[str, NDArray[Any]]],
    flags: Mapping[str, bool],
    *,
    with_auc_roc: bool = False,
) -> tuple[ClientScore, ...]:
    """Score a round.

    Parameters
    ----------
    fleet : Fleet
    round_num : int >= 1
    served : mapping of client id to str
        Key in `models` of what each client is served after the round; who has not joined yet is
        left out.
    models : mapping of str to parameters
    flags : mapping of client id to bool
        Drift flags of the round; without the clients that reported none.
    with_auc_roc : bool
        Whether to measure the area under the ROC curve, too.

    Notes
    -----
    Clients that are served one model and tested on the same windows, whatever these are called
    there, need it evaluated once.
    """
    known: dict[tuple[str, bytes], NDArray[Any]] = {}
    scores = []
    for client_id in (c for c in fleet.client_ids if c in served):
        windows, labels = fleet.test_windows(client_id, round_num)
        key = served[client_id], hashlib.sha256(windows.tobytes()).digest()
        if key not in known:
            known[key] = class_logits(models[served[client_id]], windows, model=fleet.model)
        predictions = known[key].argmax(axis=1)
        scores.append(
            ClientScore(
                round_num,
                client_id,
                f1=macro_f1(labels, predictions),
                flagged=flags.get(client_id),
                accuracy=float((predictions == labels).mean()),
                auc_roc=macro_auc_roc(labels, softmax(known[key])) if with_auc_roc else None,
            )
        )
    return tuple(scores)
