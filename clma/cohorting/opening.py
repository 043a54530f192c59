"""What changes when a round opens: known cohorts, k models apart, cohorts of like data."""

from __future__ import annotations

from collections.abc import Callable

from clma.cohorting.given import given_moves, moves_apart
from clma.cohorting.ifca import start_apart
from clma.config import FederationConfig
from clma.errors import InvalidConfigError
from clma.parameters.tensor_file import TensorFile
from clma.records import ArtifactRef, FederationState
from clma.signatures.signature import SignatureSource

__all__ = ["check_source", "opening_moves"]


def opening_moves(
    state: FederationState,
    config: FederationConfig,
    round_num: int,
    *,
    open_tensors: Callable[[ArtifactRef], TensorFile],
    save_model: Callable[[bytes], str],
    signature_of: SignatureSource | None = None,
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
    signature_of : callable, optional
        For methods that place clients by signatures of their data.

    Raises
    ------
    InvalidConfigError
        If a schedule of given cohorts leaves out a registered client, or the method needs
        signatures and there are none.
    InvalidUpdateError, ShapeMismatchError
        If signatures do not compare.
    """
    method = config.cohorting.method
    if method == "local":
        return moves_apart(state, round_num)
    if method == "ifca":
        return start_apart(state, config, round_num, open_tensors, save_model)
    if config.signature_kind is None:
        return given_moves(state, config, round_num)
    check_source(config, signature_of)
    if signature_of is None:
        # Whoever has a store places by what plants sent: `clma.onboarding.opening`.
        raise InvalidConfigError(f"signatures of kind {config.signature_kind!r}: no source of them")
    return _place(state, config, round_num, signature_of)


def _place(
    state: FederationState,
    config: FederationConfig,
    round_num: int,
    signature_of: SignatureSource,
) -> FederationState:
    # SciPy comes with these, and `clma init` opens rounds where only the base install is.
    if config.signature_kind == "fmcl":
        from clma.cohorting.fmcl import place_by_class_means

        return place_by_class_means(state, config, round_num, signature_of)
    if config.signature_kind == "pacfl":
        from clma.cohorting.pacfl import place_by_angles

        return place_by_angles(state, config, round_num, signature_of)
    from clma.cohorting.fecfl import place_by_features

    return place_by_features(state, config, round_num, signature_of)


def check_source(config: FederationConfig, signature_of: SignatureSource | None) -> None:
    """Refuse a method whose signatures plants cannot send where nobody else has them.

    Raises
    ------
    InvalidConfigError
        If the method places clients by signatures of another kind than `onboarding` does, and
        `signature_of` is None.
    """
    kind = config.signature_kind
    if kind is not None and kind != config.onboarding.method and signature_of is None:
        raise InvalidConfigError(
            f"cohorting.method {kind!r} needs signatures of the clients' data, which plants cannot "
            "send; it runs on simulated fleets in one process only"
        )
