"""IFCA: k cohorts from the start, and every client trains the one that fits its data best.

There is no drift in it: choosing anew in every round is how it adapts. A cohort that nobody chose
keeps its model and is offered again.

References
----------
.. [1] Ghosh, Chung, Yin and Ramchandran (2020), "An Efficient Framework for Clustered Federated
   Learning", NeurIPS (arXiv 2006.04088), algorithm 1, option II (model averaging).

Notes
-----
The k models have to start apart, or all clients choose the same one for ever. A federation knows
only tensors, not how they were drawn, so each further model shuffles the entries of every tensor of
the first: where a layer's weights were drawn independently, that is another draw of the same
distribution. Equal losses go to the lowest number. There are no restarts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from clma.config import FederationConfig
from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.records import ROOT_COHORT, ArtifactRef, Cohort, FederationState, model_ref

__all__ = ["shuffled_model", "start_apart"]


def start_apart(
    state: FederationState,
    config: FederationConfig,
    round_num: int,
    open_tensors: Callable[[ArtifactRef], TensorFile],
    save_model: Callable[[bytes], str],
) -> FederationState:
    """Return the state with k cohorts, when the first round opens; later it comes back as it is.

    Parameters
    ----------
    state : FederationState
        Not modified.
    config : FederationConfig
        ``cohorting.n_models`` is k.
    round_num : int >= 1
        The round about to open.
    open_tensors, save_model : callable
    """
    if round_num > 1:
        return state
    cohorts = dict(state.cohorts)
    base = cohorts[ROOT_COHORT].model_digest
    for number in range(1, config.cohorting.n_models):
        digest = save_model(shuffled_model(base, [config.seed, number], open_tensors))
        cohorts[f"c{number}"] = Cohort(f"c{number}", None, 0, digest)
    return dataclasses.replace(state, cohorts=cohorts).rested()


def shuffled_model(
    digest: str, seed: list[int], open_tensors: Callable[[ArtifactRef], TensorFile]
) -> bytes:
    """Return a model whose tensors have the entries of another one's in a random order."""
    rng = np.random.default_rng(seed)
    with open_tensors(model_ref(digest)) as file:
        tensors = {
            spec.name: np.array(file.read(spec.name))
            for spec in sorted(file.specs, key=lambda spec: spec.name)
        }
    shuffled = {
        name: rng.permutation(values.ravel()).reshape(values.shape)
        for name, values in tensors.items()
    }
    return serialize_tensors(shuffled)
