"""What a method changes when a round opens: known cohorts, one cohort each, k models apart."""

from __future__ import annotations

from collections.abc import Callable

from clma.cohorting.given import given_moves, moves_apart
from clma.cohorting.ifca import start_apart
from clma.config import FederationConfig
from clma.parameters.tensor_file import TensorFile
from clma.records import ArtifactRef, FederationState

__all__ = ["opening_moves"]


def opening_moves(
    state: FederationState,
    config: FederationConfig,
    round_num: int,
    *,
    open_tensors: Callable[[ArtifactRef], TensorFile],
    save_model: Callable[[bytes], str],
) -> FederationState:
    """Return the state with what the configured method changes when a round opens.

    Parameters
    ----------
    state : FederationState
        After the last commit. Not modified.
    config : FederationConfig
    round_num : int >= 1
        The round about to open.
    open_tensors, save_model : callable
        Read and store models.

    Raises
    ------
    InvalidConfigError
        If a schedule of given cohorts leaves out a registered client.
    """
    method = config.cohorting.method
    if method == "local":
        return moves_apart(state, round_num)
    if method == "ifca":
        return start_apart(state, config, round_num, open_tensors, save_model)
    return given_moves(state, config, round_num)
