"""Hold the voters out of a round's models that point against their cohort.

Before votes are taken: what a cohort's voters come to is one sum, from which nobody can be taken
out afterwards.
"""

from __future__ import annotations

import dataclasses
import hashlib

from clma.aggregation.outliers import MIN_VOTERS, find_outliers
from clma.cohorting.contract import OpenTensors
from clma.config import FederationConfig
from clma.drift.quarantine import Triage
from clma.rows import SealedRound
from clma.sweep.columns import Columns
from clma.sweep.directions import cosines_to_middle

__all__ = ["hold_out_outliers"]


def hold_out_outliers(
    sealed: SealedRound,
    triage: Triage,
    columns: Columns,
    open_tensors: OpenTensors,
    config: FederationConfig,
) -> Triage:
    """Take the outliers among a round's voters out of its votes.

    Parameters
    ----------
    sealed : SealedRound
        Accepted updates; their order does not matter.
    triage : Triage
        Not modified.
    columns : Columns
    open_tensors : callable
    config : FederationConfig

    Returns
    -------
    Triage
        With the outliers named, and noted why; they stay in their cohort and are served its model.
        The same one where nobody is, or the check is off.

    Notes
    -----
    Voters without an example are not looked at: they have no vote that could be held out. The
    others count once each, whatever number they claim.
    """
    if not config.aggregation.outlier_check:
        return triage
    updates = {u.client_id: u for u in sealed.updates}
    equal = config.aggregation.weight == "equal"
    notes = dict(triage.notes)
    outliers: list[str] = []
    for cohort_id, voters in triage.voters.items():
        weighed = [updates[v] for v in voters if equal or updates[v].n_examples > 0]
        if len(weighed) < MIN_VOTERS:
            continue
        seed = _seed(config, sealed.round_num, cohort_id)
        cosines = cosines_to_middle(weighed, columns, open_tensors, seed=seed)
        found = find_outliers(cosines, config.aggregation)
        for update, cosine, out in zip(weighed, cosines.tolist(), found, strict=True):
            if out:
                outliers.append(update.client_id)
                reason = (
                    f"held out of {cohort_id}: its update points against the others' "
                    f"(cosine {cosine:.2f}), and it flagged no drift that was followed"
                )
                known = notes.get(update.client_id)
                notes[update.client_id] = f"{known}; {reason}" if known else reason
    if not outliers:
        return triage
    out_of = frozenset(outliers)
    return dataclasses.replace(
        triage,
        voters={
            cohort_id: tuple(v for v in voters if v not in out_of)
            for cohort_id, voters in triage.voters.items()
        },
        notes=notes,
        outliers=tuple(sorted(outliers)),
    )


def _seed(config: FederationConfig, round_num: int, cohort_id: str) -> int:
    text = f"{config.federation}/{config.seed}/{round_num}/{cohort_id}/outliers"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
