"""Add what only a simulation knows to a round's MLflow run: scores against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from clma.ledger.federation import Federation
from clma.simulation.fleet import Fleet
from clma.simulation.life import RoundView
from tasks import tracking
from tasks.publish_round import tracking_place

__all__ = ["publish_scores"]


def publish_scores(
    federation: Federation, fleet: Fleet, views: Sequence[RoundView], tracking_uri: str | None
) -> None:
    """Publish the newest view's macro-F1, with the curves up to it.

    Parameters
    ----------
    federation : Federation
    fleet : Fleet
    views : sequence of RoundView
        All rounds so far, the newest last.
    tracking_uri : str or None
    """
    newest = views[-1]
    drifted = set(fleet.drifted_clients)
    scored = [(s.client_id, s.f1) for s in newest.scores if s.f1 is not None]
    metrics = {
        f"f1/{name}": fmean(values)
        for name, values in (
            ("stationary", [f1 for c, f1 in scored if c not in drifted]),
            ("drifting", [f1 for c, f1 in scored if c in drifted]),
        )
        if values
    }
    curves: dict[str, dict[str, dict[int, float]]] = {"macro_f1": {}}
    for view in views:
        for score in view.scores:
            if score.f1 is not None:
                curve = curves["macro_f1"].setdefault(score.client_id, {})
                curve[view.round_num] = score.f1
    tracking.publish_round(
        federation,
        newest.round_num,
        tracking_place(tracking_uri),
        metrics=metrics,
        curves=curves,
    )
