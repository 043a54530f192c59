"""A shard of the pass over a round's files, and how shards become the evidence of the round.

A shard has some of the stripes of columns and some of the clients: sums over columns come from the
stripes, the Kolmogorov-Smirnov statistics, which need a client's whole vector, from the clients.
Sums of stripes are added in the order of the stripes, so the number of shards changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.contract import CohortingUnit, Evidence, OpenTensors
from clma.cohorting.placement import AggregationJob
from clma.cohorting.signed_ks import signed_ks_of_rows
from clma.config import CohortingConfig, FederationConfig
from clma.decision import Measurement
from clma.errors import InvalidUpdateError
from clma.parameters.moves import EVIDENCE_DIGITS, Movements, blended_distances
from clma.records import ArtifactRef
from clma.sweep.columns import BLOCK, Columns, Span
from clma.sweep.inner_products import InnerProducts, Way, inner_products
from clma.sweep.means import Sweep, mean_of_rows
from clma.sweep.plan import CONSENSUS, Shard, SweepPlan, rule_of
from clma.sweep.rows import Rows
from clma.sweep.sketch import Signs, gram_of_sketches
from clma.sweep.sums import added, kept_apart
from clma.sweep.votes import Votes, take_votes

__all__ = ["ShardSums", "UnitSums", "measurements", "sweep_shard", "unit_evidence"]

SaveVotes = Callable[[AggregationJob, Votes], None]
"""Takes what a shard knows of a cohort's model."""


@dataclass(frozen=True, slots=True)
class UnitSums:
    """What a shard knows of a cohorting unit.

    Parameters
    ----------
    products : tuple of InnerProducts
        One a stripe, or their sum: members first, then candidates, then witnesses.
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
    save_votes: SaveVotes,
) -> ShardSums:
    """Do a shard's part of the pass.

    Parameters
    ----------
    plan : SweepPlan
    shard : Shard
    columns : Columns
    open_tensors : callable
    config : FederationConfig
    save_votes : callable
        Called once a job of the plan.
    """
    sweep = Sweep(columns, _stripes_of(columns, shard), open_tensors)
    norm_squares = []
    for job in plan.jobs:
        squares = _vote(sweep, job, config, save_votes)
        norm_squares += [] if job.cohort_id == CONSENSUS else [squares]
    if plan.measured:
        squares = np.zeros((2, len(sweep.stripes), len(plan.measured)))
        mean_of_rows(sweep, plan.measured, [0.0] * len(plan.measured), squares)
        norm_squares.append(squares[0])
    nobody = np.zeros((len(sweep.stripes), 0))
    return ShardSums(
        np.concatenate([nobody, *norm_squares], axis=1),
        tuple(_sum_unit(sweep, unit, shard, config) for unit in plan.units),
    )


def _vote(
    sweep: Sweep, job: AggregationJob, config: FederationConfig, save_votes: SaveVotes
) -> NDArray[np.float64]:
    """Take a cohort's votes and let go of them; return the squared norms."""
    measured = job.cohort_id != CONSENSUS
    votes = take_votes(sweep, job.voters, rule_of(job, config), measured=measured)
    save_votes(job, votes)
    squares: NDArray[np.float64] = votes.norm_squares[0]
    return squares


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
    squares = dict(zip(ids, added(row for s in sums for row in s.norm_squares), strict=True))
    for number, unit in enumerate(plan.units):
        own = added(p.layer_squares for s in sums for p in s.units[number].products).sum(axis=0)
        for row, member in enumerate(unit.members):
            squares.setdefault(member.client_id, own[row])
    return tuple(
        Measurement(client_id, round(float(np.sqrt(squares[client_id])), EVIDENCE_DIGITS))
        for client_id in sorted(squares)
    )


def unit_evidence(
    unit: CohortingUnit, sums: Sequence[UnitSums], columns: Columns, config: CohortingConfig
) -> Evidence:
    """Put together what the shards know of a unit.

    Parameters
    ----------
    unit : CohortingUnit
    sums : sequence of UnitSums
        Of all shards, in their order.
    columns : Columns
    config : CohortingConfig
        Says what share the output layer has in a distance.

    Raises
    ------
    InvalidUpdateError
        If a product is not finite (float64 overflow of absurd weights).
    """
    n = len(unit.members)
    products = added(p for s in sums for p in s.products)
    gram = _gram(products.gram, products.sketches, products.layer_squares)
    output = None
    if columns.output:
        squares = products.layer_squares[np.flatnonzero(columns.output)]
        output = _gram(products.output_gram, products.output_sketches, squares)
    chosen = np.flatnonzero(columns.selected)
    n_selected = int(np.diff(columns.borders)[chosen].sum())
    movements = Movements(
        gram,
        products.layer_squares[chosen],
        products.sums / max(n_selected, 1),
        tuple(columns.names[tensor] for tensor in chosen),
        output,
    )
    raws = [raw for s in sums for raw in s.raw_grams]
    return Evidence(
        movements,
        blended_distances(movements, n, output_weight=config.output_weight),
        np.nanmax([s.ks_statistics for s in sums], axis=0),
        added(raws) if raws else None,
    )


def _gram(
    gram: NDArray[np.float64], sketches: NDArray[np.float64], squares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return finite inner products, where there are only sketches from these and exact norms."""
    if sketches.shape[1]:
        gram = gram_of_sketches(sketches, squares.sum(axis=0))
    if not np.isfinite(gram).all():
        raise InvalidUpdateError("movements overflow float64, wanted weights of sane size")
    return np.asarray((gram + gram.T) / 2)


def _sum_unit(
    sweep: Sweep, unit: CohortingUnit, shard: Shard, config: FederationConfig
) -> UnitSums:
    members = [m.tensors for m in unit.members]
    refs = [*members, *(c.model for c in unit.candidates)]
    ways = [Way(witness.reference, witness.model) for witness in unit.witnesses]
    signs = _signs(unit, config)
    products = inner_products(sweep, refs, unit.reference, signs=signs, ways=ways)
    raws = (p.gram for p in inner_products(sweep, members, None)) if _needs_raw(config) else ()
    statistics = np.full(len(members), np.nan)
    mine = slice(shard.index, None, shard.count)
    statistics[mine] = _signed_ks(sweep, members[mine], unit.reference)
    alone = shard.count == 1
    return UnitSums(
        kept_apart(products, all_stripes=alone), kept_apart(raws, all_stripes=alone), statistics
    )


def _needs_raw(config: FederationConfig) -> bool:
    """Tell whether the cohorting method looks at the weights themselves."""
    return config.cohorting.method == "signed_ks"


def _signs(unit: CohortingUnit, config: FederationConfig) -> Signs | None:
    if config.cohorting.distance == "exact":
        return None
    return Signs(unit.seed, config.cohorting.sketch_features)


def _signed_ks(
    sweep: Sweep, refs: Sequence[ArtifactRef], reference: ArtifactRef
) -> tuple[float, ...]:
    if not refs:
        return ()
    files = [reference, *refs]
    with closing(Rows(files, sweep.open_tensors, sweep.columns, width=16 * BLOCK)) as rows:
        return signed_ks_of_rows(_Vectors(rows), rows.vector(0))


class _Vectors:
    """All rows but the first as whole vectors, one of which is in memory at a time."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows) - 1

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        return (self._rows.vector(row) for row in range(1, len(self._rows)))


def _stripes_of(columns: Columns, shard: Shard) -> tuple[Span, ...]:
    stripes = columns.stripes()
    n = len(stripes)
    return stripes[shard.index * n // shard.count : (shard.index + 1) * n // shard.count]
