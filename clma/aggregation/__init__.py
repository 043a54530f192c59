"""Aggregation: how a cohort's model is made from its members' updates.

Examples
--------
>>> too_few_voters(4, AggregationConfig(method="krum"))
"4 updates have a weight, aggregation.method 'krum' needs 5"
"""

from __future__ import annotations

from collections.abc import Mapping

from clma.aggregation.clipped_mean import clip_updates
from clma.aggregation.contract import Aggregator
from clma.aggregation.geometric_median import weigh_by_distance
from clma.aggregation.krum import fewest_voters, select_closest
from clma.aggregation.median import middle_values
from clma.aggregation.robust import method_for
from clma.aggregation.trimmed_mean import mean_of_the_middle
from clma.config import AggregationConfig
from clma.errors import NotEnoughClientsError

__all__ = ["AGGREGATORS", "choose_aggregator", "too_few_voters"]

AGGREGATORS: Mapping[str, Aggregator] = {
    "weighted_mean": Aggregator(),
    "clipped_mean": Aggregator(mix=clip_updates),
    "median": Aggregator(columns=middle_values),
    "trimmed_mean": Aggregator(columns=mean_of_the_middle),
    "geometric_median": Aggregator(mix=weigh_by_distance, compares=True),
    "krum": Aggregator(mix=select_closest, compares=True, min_voters=fewest_voters),
}


def choose_aggregator(n_voters: int, config: AggregationConfig) -> Aggregator:
    """Return the rule for a cohort.

    Parameters
    ----------
    n_voters : int >= 1
        Updates with a weight above 0.
    config : AggregationConfig

    Raises
    ------
    NotEnoughClientsError
        If the rule needs more voters.
    """
    reason = too_few_voters(n_voters, config)
    if reason is not None:
        raise NotEnoughClientsError(reason)
    return _rule(n_voters, config)


def too_few_voters(n_voters: int, config: AggregationConfig) -> str | None:
    """Say why the rule cannot make a model of so many updates; None if it can."""
    needed = _rule(n_voters, config).min_voters(config)
    if n_voters >= needed:
        return None
    return f"{n_voters} updates have a weight, aggregation.method {config.method!r} needs {needed}"


def _rule(n_voters: int, config: AggregationConfig) -> Aggregator:
    return AGGREGATORS[method_for(n_voters) if config.method == "robust" else config.method]
