"""What passes between the strategy and its federation: what a node is sent, and a closed round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clma.records import FederationState
from clma.rows import UpdateRow, Verdict

if TYPE_CHECKING:  # a client app has no use for what a round needs
    from clma.round import RoundOutcome

__all__ = ["Assignment", "ClosedRound", "node_name"]


def node_name(node_id: int) -> str:
    """Return the client id of a node, unless the strategy is told another rule."""
    return f"node-{node_id}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a node is sent.

    Parameters
    ----------
    client_id, cohort_id : str
    model : str
        Digest of the model that it trains.
    origin : str or None
        Digest of the model that it is asked about.
    learning_rate_factor : float in (0, 1]
    """

    client_id: str
    cohort_id: str
    model: str
    origin: str | None = None
    learning_rate_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A round that was closed.

    Parameters
    ----------
    before : FederationState
        When it was sealed.
    outcome : RoundOutcome or None
        None: it was held.
    rows : tuple of UpdateRow
        What became of the replies.
    held : str
        Why it was held.
    """

    before: FederationState
    outcome: RoundOutcome | None
    rows: tuple[UpdateRow, ...]
    held: str = ""

    @property
    def refused(self) -> tuple[UpdateRow, ...]:
        """Replies that were not used, and why."""
        return tuple(row for row in self.rows if row.verdict is Verdict.REJECTED)

    @property
    def accepted(self) -> frozenset[str]:
        """Clients whose reply was used."""
        return frozenset(row.client_id for row in self.rows if row.verdict is Verdict.ACCEPTED)
