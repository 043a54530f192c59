"""A shard of the pass over a round's files, and how shards become the evidence of the round.

A shard has some of the stripes of columns and some of the clients: sums over columns come from the
stripes, the Kolmogorov-Smirnov statistics, which need a client's whole vector, from the clients.
Sums of stripes are added in the order of the stripes, so the number of shards changes nothing.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.weighted_mean import shares_of
from clma.cohorting.contract import CohortingUnit, Evidence, OpenTensors
from clma.cohorting.placement import AggregationJob
from clma.cohorting.signed_ks import signed_ks_of_rows
from clma.config import FederationConfig
from clma.decision import Measurement
from clma.errors import InvalidUpdateError
from clma.parameters.moves import EVIDENCE_DIGITS, Movements, cosine_distances
from clma.records import ArtifactRef, SealedUpdate
from clma.sweep.columns import Columns, Span
from clma.sweep.inner_products import InnerProducts, inner_products
from clma.sweep.means import Sweep, mean_of_rows
from clma.sweep.plan import CONSENSUS, Shard, SweepPlan
from clma.sweep.rows import Rows

__all__ = ["ShardSums", "UnitSums", "measurements", "sweep_shard", "unit_evidence"]

Sum = TypeVar("Sum", InnerProducts, NDArray[Any])

SaveSlice = Callable[[AggregationJob, NDArray[np.uint8]], None]
"""Takes a cohort's mean over a shard's columns, as the columns lie in a file."""


@dataclass(frozen=True, slots=True)
class UnitSums:
    """What a shard knows of a cohorting unit.

    Parameters
    ----------
    products : tuple of InnerProducts
        One a stripe, or their sum: members first, then candidates.
    raw_grams : tuple of ndarray of shape (n_members, n_members)
        Inner products of the weights themselves, where a method asks for them.
    ks_statistics : ndarray of shape (n_members,)
        NaN for the clients of other shards.
    """

    products: tuple[InnerProducts, ...]
    raw_grams: tuple[NDArray[np.float64], ...]
    ks_statistics: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ShardSums:
    """What a shard came to.

    Parameters
    ----------
    norm_squares : ndarray of shape (n_stripes, n_clients)
        Of the voters and the measured, in the order of the plan.
    units : tuple of UnitSums
        In the order of the plan.
    """

    norm_squares: NDArray[np.float64]
    units: tuple[UnitSums, ...]


def sweep_shard(
    plan: SweepPlan,
    shard: Shard,
    columns: Columns,
    open_tensors: OpenTensors,
    config: FederationConfig,
    save_slice: SaveSlice,
) -> ShardSums:
    """Do a shard's part of the pass.

    Parameters
    ----------
    plan : SweepPlan
    shard : Shard
    columns : Columns
    open_tensors : callable
    config : FederationConfig
    save_slice : callable
        Called once a job of the plan.
    """
    sweep = Sweep(columns, _stripes_of(columns, shard), open_tensors)
    norm_squares = []
    for job in plan.jobs:
        squares = None if job.cohort_id == CONSENSUS else _zeros(sweep, job.voters)
        save_slice(job, mean_of_rows(sweep, job.voters, shares_of(job.voters, config), squares))
        norm_squares += [] if squares is None else [squares]
    if plan.measured:
        squares = _zeros(sweep, plan.measured)
        mean_of_rows(sweep, plan.measured, [0.0] * len(plan.measured), squares)
        norm_squares.append(squares)
    return ShardSums(
        np.concatenate(norm_squares, axis=1) if norm_squares else _zeros(sweep, ()),
        tuple(_sum_unit(sweep, unit, shard, config) for unit in plan.units),
    )


def measurements(plan: SweepPlan, sums: Sequence[ShardSums]) -> tuple[Measurement, ...]:
    """Return how far every client moved, sorted by client id.

    Parameters
    ----------
    plan : SweepPlan
    sums : sequence of ShardSums
        Of all shards, in their order.
    """
    updates = [u for job in plan.jobs if job.cohort_id != CONSENSUS for u in job.voters]
    ids = [u.client_id for u in (*updates, *plan.measured)]
    squares = dict(zip(ids, _added(row for s in sums for row in s.norm_squares), strict=True))
    for number, unit in enumerate(plan.units):
        gram = _added(p.gram for s in sums for p in s.units[number].products)
        for row, member in enumerate(unit.members):
            squares.setdefault(member.client_id, gram[row, row])
    return tuple(
        Measurement(client_id, round(float(np.sqrt(squares[client_id])), EVIDENCE_DIGITS))
        for client_id in sorted(squares)
    )


def unit_evidence(unit: CohortingUnit, sums: Sequence[UnitSums], columns: Columns) -> Evidence:
    """Put together what the shards know of a unit.

    Parameters
    ----------
    unit : CohortingUnit
    sums : sequence of UnitSums
        Of all shards, in their order.
    columns : Columns

    Raises
    ------
    InvalidUpdateError
        If a product is not finite (float64 overflow of absurd weights).
    """
    n = len(unit.members)
    products = _added(p for s in sums for p in s.products)
    if not np.isfinite(products.gram).all():
        raise InvalidUpdateError("movements overflow float64, wanted weights of sane size")
    chosen = np.flatnonzero(columns.selected)
    n_selected = int(np.diff(columns.borders)[chosen].sum())
    movements = Movements(
        (products.gram + products.gram.T) / 2,
        products.layer_squares[chosen],
        products.sums / max(n_selected, 1),
        tuple(columns.names[tensor] for tensor in chosen),
    )
    raws = [raw for s in sums for raw in s.raw_grams]
    return Evidence(
        movements,
        cosine_distances(movements.gram[:n, :n]),
        np.nanmax([s.ks_statistics for s in sums], axis=0),
        _added(raws) if raws else None,
    )


def _sum_unit(
    sweep: Sweep, unit: CohortingUnit, shard: Shard, config: FederationConfig
) -> UnitSums:
    members = [m.tensors for m in unit.members]
    refs = [*members, *(c.model for c in unit.candidates)]
    products = inner_products(sweep, refs, unit.reference)
    raws = (p.gram for p in inner_products(sweep, members, None)) if needs_raw(config) else ()
    statistics = np.full(len(members), np.nan)
    mine = slice(shard.index, None, shard.count)
    statistics[mine] = _signed_ks(sweep, members[mine], unit.reference)
    return UnitSums(_kept_apart(products, shard), _kept_apart(raws, shard), statistics)


def needs_raw(config: FederationConfig) -> bool:
    """Tell whether the cohorting method looks at the weights themselves."""
    return config.cohorting.method == "signed_ks"


def _signed_ks(
    sweep: Sweep, refs: Sequence[ArtifactRef], reference: ArtifactRef
) -> tuple[float, ...]:
    if not refs:
        return ()
    with Rows([reference, *refs], sweep.open_tensors, sweep.columns) as rows:
        vectors = (rows.vector(row) for row in range(1, len(rows)))
        return signed_ks_of_rows(vectors, rows.vector(0))


def _kept_apart(sums: Iterable[Sum], shard: Shard) -> tuple[Sum, ...]:
    """Return the sums of stripes; of the only shard, which has all of them, what they add up to."""
    found: Iterator[Sum] = iter(sums)
    if shard.count > 1:
        return tuple(found)
    first = next(found, None)
    return () if first is None else (functools.reduce(operator.add, found, first),)


def _added(sums: Iterable[Sum]) -> Sum:
    return functools.reduce(operator.add, sums)


def _stripes_of(columns: Columns, shard: Shard) -> tuple[Span, ...]:
    stripes = columns.stripes()
    n = len(stripes)
    return stripes[shard.index * n // shard.count : (shard.index + 1) * n // shard.count]


def _zeros(sweep: Sweep, updates: Sequence[SealedUpdate]) -> NDArray[np.float64]:
    return np.zeros((len(sweep.stripes), len(updates)))
