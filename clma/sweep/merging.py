"""Compare the models of live cohorts, and merge those that went the same way."""

from __future__ import annotations

from clma.cohorting.contract import OpenTensors
from clma.cohorting.merge import (
    Alike,
    CohortPair,
    cosine_from,
    merges_cohorts,
    pairs_to_compare,
    with_merges,
)
from clma.config import FederationConfig
from clma.drift.quarantine import Triage
from clma.errors import InvalidUpdateError
from clma.records import FederationState, model_ref
from clma.rows import SealedRound
from clma.sweep.columns import Columns
from clma.sweep.inner_products import inner_products
from clma.sweep.means import Sweep
from clma.sweep.sums import added

__all__ = ["merge_cohorts"]


def merge_cohorts(
    state: FederationState,
    sealed: SealedRound,
    triage: Triage,
    columns: Columns,
    open_tensors: OpenTensors,
    config: FederationConfig,
) -> Triage:
    """Merge the live cohorts whose models went the same way for some rounds.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    triage : Triage
        After `hold_out_outliers`. Not modified.
    columns : Columns
    open_tensors : callable
    config : FederationConfig

    Returns
    -------
    Triage
        The same one where the configuration merges nothing, or there is nothing to compare.

    Notes
    -----
    The models are those that the round's clients were sent: what today's updates make of them is
    known only after the votes. They are read once, whatever the number of pairs.
    """
    pairs = pairs_to_compare(state, sealed, triage) if merges_cohorts(config) else ()
    if not pairs:
        return triage
    compared = _cosines(state, pairs, columns, open_tensors)
    return with_merges(state, sealed, triage, compared, config)


def _cosines(
    state: FederationState,
    pairs: tuple[CohortPair, ...],
    columns: Columns,
    open_tensors: OpenTensors,
) -> list[Alike]:
    model_of = {c: state.cohorts[c].model_digest for p in pairs for c in (p.older, p.younger)}
    digests = sorted({*model_of.values(), *(p.parted_digest for p in pairs)})
    sweep = Sweep(columns, columns.stripes(), open_tensors)
    refs = [model_ref(d) for d in digests]
    gram = added(inner_products(sweep, refs, model_ref(digests[0]))).gram
    if not (abs(gram) < float("inf")).all():
        raise InvalidUpdateError("models overflow float64, wanted weights of sane size")
    row = {digest: number for number, digest in enumerate(digests)}
    return [
        Alike(
            pair,
            cosine_from(
                gram,
                row[pair.parted_digest],
                row[model_of[pair.older]],
                row[model_of[pair.younger]],
            ),
        )
        for pair in pairs
    ]
