"""From the voters' files to a cohort's model, whatever the rule.

A shard takes the votes of its stripes of columns (`take_votes`); all shards' votes together make
the model (`make_model`). A rule that looks at whole updates cannot say what counts before all
shards are done: only then, and only if it is not the mean that the pass has made already, the
files are read once more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.aggregation import choose_aggregator
from clma.aggregation.contract import Aggregator, Spread
from clma.aggregation.weighted_mean import shares_of
from clma.cohorting.contract import OpenTensors
from clma.config import AggregationConfig
from clma.records import ArtifactRef, SealedUpdate, model_ref
from clma.sweep.columns import Columns
from clma.sweep.inner_products import inner_products
from clma.sweep.join import join_model
from clma.sweep.means import Sweep, mean_of_rows, mix_of_rows
from clma.sweep.sorted_columns import reduce_columns
from clma.sweep.sums import added, kept_apart

__all__ = ["Votes", "make_model", "take_votes"]


@dataclass(frozen=True, slots=True)
class Votes:
    """What a shard knows of a cohort's model.

    Parameters
    ----------
    columns : ndarray of bytes
        The shard's columns of the model as they lie in a file; empty where the rule compares the
        voters first.
    norm_squares : ndarray of shape (2, n_stripes, n_voters)
        Of the updates: over the tensors that cohorting looks at, and over all others.
    grams : tuple of ndarray of shape (n, n)
        Inner products of the n voters with a share, one a stripe or their sum; empty where the
        rule does not compare.
    """

    columns: NDArray[np.uint8]
    norm_squares: NDArray[np.float64]
    grams: tuple[NDArray[np.float64], ...] = ()


def take_votes(
    sweep: Sweep,
    voters: Sequence[SealedUpdate],
    config: AggregationConfig,
    *,
    measured: bool = True,
) -> Votes:
    """Read the voters' files.

    Parameters
    ----------
    sweep : Sweep
    voters : sequence of n SealedUpdate
        In the order of summation: the caller sorts by client id.
    config : AggregationConfig
    measured : bool
        Whether the norms are wanted, which the weighted mean can do without.

    Raises
    ------
    EmptyCohortError
        If there is no voter, or all weights are 0.
    NotEnoughClientsError
        If the rule needs more voters.
    """
    shares, rule = _shares_and_rule(voters, config)
    squares = np.zeros((2, len(sweep.stripes), len(voters)))
    if rule.columns is not None:
        reduce = rule.columns
        columns = reduce_columns(
            sweep, voters, [s > 0 for s in shares], lambda values: reduce(values, config), squares
        )
        return Votes(columns, squares)
    if rule.compares:
        mean_of_rows(sweep, voters, [0.0] * len(voters), squares)
        return Votes(np.empty(0, np.uint8), squares, _grams(sweep, voters, shares))
    wanted = squares if measured or rule.mix is not None else None
    return Votes(mean_of_rows(sweep, voters, shares, wanted), squares)


def make_model(
    voters: Sequence[SealedUpdate],
    votes: Sequence[Votes],
    config: AggregationConfig,
    columns: Columns,
    base: ArtifactRef,
    open_tensors: OpenTensors,
) -> bytes:
    """Make a model file of all shards' votes.

    Parameters
    ----------
    voters : sequence of SealedUpdate
        As for `take_votes`.
    votes : sequence of Votes
        Of all shards, in their order.
    config : AggregationConfig
    columns : Columns
    base : ArtifactRef
        A model of the federation: its names, shapes and dtypes are the result's.
    open_tensors : callable

    Returns
    -------
    bytes
        A safetensors file; equal input gives equal bytes, however the work was divided.
    """
    shares, rule = _shares_and_rule(voters, config)
    mix = None if rule.mix is None else rule.mix(_spread(votes, shares), config)
    if mix is None:
        return join_model([v.columns for v in votes], voters, shares, base, open_tensors)
    voters = [u for u, share in zip(voters, shares, strict=True) if share]
    mixed = mix_of_rows(Sweep(columns, columns.stripes(), open_tensors), voters, mix)
    return join_model([mixed], voters, mix.weights.tolist(), base, open_tensors)


def _shares_and_rule(
    voters: Sequence[SealedUpdate], config: AggregationConfig
) -> tuple[list[float], Aggregator]:
    shares = shares_of(voters, config)
    return shares, choose_aggregator(sum(s > 0 for s in shares), config)


def _grams(
    sweep: Sweep, voters: Sequence[SealedUpdate], shares: Sequence[float]
) -> tuple[NDArray[np.float64], ...]:
    """Return inner products over all tensors of floating point.

    In float64 for any number of voters: the square of a float32 may be too large for it, and one
    such update must not make the others' products infinite.
    """
    chosen = [u for u, share in zip(voters, shares, strict=True) if share]
    everything = (True,) * len(sweep.columns.specs)
    whole = dataclasses.replace(
        sweep, columns=dataclasses.replace(sweep.columns, selected=everything, output=())
    )
    products = inner_products(
        whole,
        [u.tensors for u in chosen],
        model_ref(chosen[0].base_digest),
        max_wide_rows=math.inf,
    )
    alone = sweep.stripes == sweep.columns.stripes()
    return kept_apart((p.gram for p in products), all_stripes=alone)


def _spread(votes: Sequence[Votes], shares: Sequence[float]) -> Spread:
    weighed = np.asarray(shares)
    stripes = [
        v.norm_squares[:, number] for v in votes for number in range(v.norm_squares.shape[1])
    ]
    grams = [gram for v in votes for gram in v.grams]
    gram = added(grams) if grams else None
    return Spread(
        weighed[weighed > 0],
        np.sqrt(added(stripes)[:, weighed > 0]),
        None if gram is None else (gram + gram.T) / 2,
    )
