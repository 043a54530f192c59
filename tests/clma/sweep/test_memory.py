"""A round's memory does not grow with the number of its clients.

The quarantined take a tile of bounded size (`clma.sweep.tiles`); here they are two.
"""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np

from clma.records import SealedUpdate
from tests.clma.shelf import Shelf, one_cohort, run

N_PARAMETERS = 250_000
MODEL_BYTES = 4 * N_PARAMETERS


def peak_bytes(shelf: Shelf, n_clients: int) -> int:
    """Return the most memory that a round takes in which two clients drifted."""
    rng = np.random.default_rng(n_clients)
    base = shelf.put({"w": np.zeros(N_PARAMETERS, np.float32)}).sha256
    refs = [
        shelf.put({"w": rng.normal(size=N_PARAMETERS).astype(np.float32)}) for _ in range(n_clients)
    ]
    updates = [SealedUpdate(f"p{i:03d}", base, ref, 10, i < 2) for i, ref in enumerate(refs)]
    state = one_cohort(base, [u.client_id for u in updates])
    gc.collect()
    tracemalloc.start()
    run(shelf, state, updates)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_three_times_the_clients_take_no_more_memory(shelf: Shelf) -> None:
    peak_bytes(shelf, 20)  # what is imported or cached once
    few, many = peak_bytes(shelf, 20), peak_bytes(shelf, 60)
    assert many <= 1.15 * few
    assert few <= 3 * MODEL_BYTES + 4 * 2**20
