"""Decide every recorded night again under other settings, each from its own recorded state.

Nothing is trained anew: what the plants would have sent after another decision is not known. Night
after night the question is only where the clients of that night's quarantine would have gone.

Examples
--------
>>> from clma.config import preset_config
>>> north = preset_config("north")
>>> override_decisions(north, ["cohorting.pair_threshold=0.5"]).cohorting.pair_threshold
0.5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clma.calibration.decisions import NEW, destinations
from clma.calibration.measure import Measured
from clma.calibration.nights import Night
from clma.config import FederationConfig, override_config
from clma.errors import InvalidConfigError
from clma.rows import CohortingRow
from clma.simulation.scores import adjusted_rand_index

__all__ = ["NightAgain", "decide_again", "override_decisions"]

_REPLAYED = ("cohorting.", "drift.confirm")


@dataclass(frozen=True, slots=True)
class NightAgain:
    """One night, as it was decided and as it would be.

    Parameters
    ----------
    round_num : int
    n_recorded, n_again : int
        Clients in quarantine.
    cohorts_recorded, cohorts_again : int
        Different places that they went to.
    agreement : float in [-0.5, 1]
        Adjusted Rand index of both groupings of the clients that were in quarantine both times.
    changed : tuple of client id
        Those of them that would have been recalled elsewhere, or not recalled, or only so now.
    """

    round_num: int
    n_recorded: int
    n_again: int
    cohorts_recorded: int
    cohorts_again: int
    agreement: float
    changed: tuple[str, ...]


def override_decisions(config: FederationConfig, settings: Sequence[str]) -> FederationConfig:
    """Return a configuration with settings changed that decide a recorded night.

    Raises
    ------
    InvalidConfigError
        If a setting is unknown, out of range, or decides at the plant.
    """
    for setting in settings:
        if not setting.strip().startswith(_REPLAYED):
            raise InvalidConfigError(
                f"--what-if {setting!r}: flags and weights are as recorded, "
                "wanted cohorting.<key>=value or drift.confirm=value"
            )
    return override_config(config, settings)


def decide_again(night: Night, measured: Measured, config: FederationConfig) -> NightAgain:
    """Decide a night again.

    Parameters
    ----------
    night : Night
    measured : Measured
        Under `config`.
    config : FederationConfig
    """
    recorded = {row.client_id: _place(row, night) for row in night.rows}
    again = destinations(measured, config.cohorting)
    both = sorted(recorded.keys() & again.keys())
    recalls = {row.client_id: row.recall_cohort or row.origin_cohort for row in night.rows}
    kept = {row.client_id for row in night.rows if row.decision in {"kept", "recalled"}}
    return NightAgain(
        round_num=night.round_num,
        n_recorded=len(recorded),
        n_again=len(again),
        cohorts_recorded=len(set(recorded.values())),
        cohorts_again=len(set(again.values())),
        agreement=adjusted_rand_index([recorded[c] for c in both], [again[c] for c in both]),
        changed=tuple(
            c
            for c in both
            if (recalls[c] if c in kept else None)
            != (None if again[c].startswith(NEW) else again[c])
        ),
    )


def _place(row: CohortingRow, night: Night) -> str:
    """Return where a client went; one that was held is with those of its group."""
    if row.decision == "kept":
        return row.origin_cohort
    held = f"{row.origin_cohort}/{row.group}"
    return row.recall_cohort or (
        held if row.decision == "held" else night.cohorts.get(row.client_id, held)
    )
