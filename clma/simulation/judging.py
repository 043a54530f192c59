"""Test every client's model on held-out data of the concept that holds there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from clma.simulation.fleet import Fleet
from clma.simulation.scores import ClientScore, macro_f1
from clma.simulation.training import predict

__all__ = ["score_clients"]


def score_clients(
    fleet: Fleet,
    round_num: int,
    served: Mapping[str, str],
    models: Mapping[str, Mapping[str, NDArray[Any]]],
    flags: Mapping[str, bool],
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
            known[key] = predict(models[served[client_id]], windows, model=fleet.model)
        right = known[key] == labels
        f1 = macro_f1(labels, known[key])
        flag = flags.get(client_id)
        scores.append(ClientScore(round_num, client_id, f1, flag, float(right.mean())))
    return tuple(scores)
