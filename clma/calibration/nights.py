"""What a recorded night says without opening a file of weights: who flagged, who moved, where to.

Examples
--------
>>> night = Night(3, cohorts={"a": "c0", "b": "c1"}, flagged=frozenset({"b"}))
>>> night.together("a", "b")
False
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from clma.cohorting.methods import triage_clients
from clma.cohorting.units import cohorting_units
from clma.ledger.federation import Federation
from clma.ledger.tables import read_rows
from clma.records import ClientStatus
from clma.rows import CohortingRow, DriftRow

__all__ = ["MAX_WATCHED", "Night", "read_night"]

MAX_WATCHED = 32
"""Clients of one unit, and of one model, whose pairs are looked at: they grow with its square."""

_IN_NO_COHORT = frozenset(
    {
        ClientStatus.FORGOTTEN,
        ClientStatus.PAUSED,
        ClientStatus.QUARANTINED,
        ClientStatus.UNSTABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Night:
    """One committed round.

    Parameters
    ----------
    round_num : int
    cohorts : mapping of client id to cohort id
        Where a client was after the round; those in quarantine and those that are away are in none.
    n_accepted : int
        Updates.
    compared : tuple of (client id, client id)
        Pairs that were set apart from one cohort and compared, the smaller id first.
    flagged : frozenset of client id
        Whose drift flag set it apart in this round.
    asked : frozenset of client id
        Who said whether the model that it had left is still bad.
    returned : frozenset of client id
        Who went home, since it is not: the flag before was a false alarm.
    outliers : frozenset of client id
        Whose update pointed against its cohort's though it had not flagged.
    losses : mapping of client id to float
        Where they are shared.
    rows : tuple of CohortingRow
        Where the clients that were set apart went.
    """

    round_num: int
    cohorts: Mapping[str, str] = field(default_factory=dict)
    n_accepted: int = 0
    compared: tuple[tuple[str, str], ...] = ()
    flagged: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    outliers: frozenset[str] = frozenset()
    losses: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[CohortingRow, ...] = ()

    def together(self, first: str, second: str) -> bool | None:
        """Tell whether two clients were in one cohort after the round; None if one was in none."""
        if first not in self.cohorts or second not in self.cohorts:
            return None
        return self.cohorts[first] == self.cohorts[second]


def read_night(federation: Federation, round_num: int) -> Night:
    """Read a committed round.

    Parameters
    ----------
    federation : Federation
        Nothing is written to it.
    round_num : int

    Raises
    ------
    RoundStateError
        If the round is not committed.
    MissingObjectError, DamagedStoreError
        If what is recorded of it cannot be read.
    """
    before, after = federation.state_at_seal(round_num), federation.state_at_commit(round_num)
    sealed, config = federation.sealed_round(round_num), federation.config_of(before)
    triage = triage_clients(before, sealed, config)
    units = cohorting_units(before, sealed, triage, config)
    rows: tuple[CohortingRow, ...] = read_rows(federation.store, round_num, "cohorting")
    drift: tuple[DriftRow, ...] = read_rows(federation.store, round_num, "drift")
    return Night(
        round_num=round_num,
        cohorts={
            client_id: client.cohort_id
            for client_id, client in after.clients.items()
            if client.status not in _IN_NO_COHORT
        },
        n_accepted=len(sealed.updates),
        compared=tuple(
            pair
            for unit in units
            for pair in combinations([m.client_id for m in unit.members[:MAX_WATCHED]], 2)
        ),
        flagged=frozenset(u.client_id for u in sealed.updates if u.drift_flag)
        & frozenset(triage.quarantined),
        asked=frozenset(u.client_id for u in sealed.updates if u.confirm is not None),
        returned=frozenset(triage.returning),
        outliers=frozenset(row.client_id for row in drift if row.server_check == "outlier"),
        losses={row.client_id: row.loss for row in drift if row.loss is not None},
        rows=rows,
    )
