"""What a plant may ask of its federation, wherever that is: in a store, or behind a gateway.

`pull` and `submit` know these questions only, so that they are the same code and the same ten lines
for a plant that reaches the store and for one that does not.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clma.cohorting.offers import OfferedModel
from clma.config import ChoiceRule, DriftConfig
from clma.errors import InvalidUpdateError, RoundStateError
from clma.records import ClientStatus, Phase, UpdateMessage
from clma.updates.message import message_bytes, parse_message
from clma.updates.reasons import Reason
from clma.updates.round_request import RoundRequest
from clma.updates.signing import SigningKey, load_key
from clma.updates.validation import (
    ExpectedUpdate,
    check_base,
    check_message,
    check_sender,
    check_tensors,
)

__all__ = [
    "KEY_VARIABLE",
    "Access",
    "AskedModel",
    "Offer",
    "PlantStatus",
    "Terms",
    "check_before_sending",
    "check_round_open",
    "given_key",
]

KEY_VARIABLE = "CLMA_CLIENT_KEY"
"""Names the file of the plant's private key where none is given."""


@dataclass(frozen=True, slots=True)
class AskedModel:
    """The model that a client is asked about.

    Parameters
    ----------
    cohort_id, digest : str
    takes : bool
        If it is not bad, it is trained.
    """

    cohort_id: str
    digest: str
    takes: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """What a client trains next and how; the fields of `PulledModel` with digests for files.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
    cohort_id : str
    base_digest : str
    drift : DriftConfig
    deadline : datetime or None
    share_loss : bool
    asked : AskedModel or None
    choice : tuple of OfferedModel
        The own model first; empty where there is no choice.
    choice_rule : ChoiceRule or None
    choice_on_drift : bool
    proximal_mu : float, >= 0
    learning_rate_factor : float in (0, 1]
    """

    federation: str
    client_id: str
    round_num: int
    cohort_id: str
    base_digest: str
    drift: DriftConfig
    deadline: dt.datetime | None = None
    share_loss: bool = False
    asked: AskedModel | None = None
    choice: tuple[OfferedModel, ...] = ()
    choice_rule: ChoiceRule | None = None
    choice_on_drift: bool = False
    proximal_mu: float = 0.0
    learning_rate_factor: float = 1.0

    def digests(self) -> frozenset[str]:
        """Return the models that the client may fetch."""
        asked = () if self.asked is None else (self.asked.digest,)
        return frozenset((self.base_digest, *asked, *(m.digest for m in self.choice)))


@dataclass(frozen=True, slots=True)
class Terms:
    """What an update has to be, and whether one is taken now.

    Parameters
    ----------
    expected : ExpectedUpdate
    phase : Phase
        Of its round.
    """

    expected: ExpectedUpdate
    phase: Phase


@dataclass(frozen=True, slots=True)
class PlantStatus:
    """Where a client stands; nothing of any other client is in it.

    Parameters
    ----------
    federation, client_id : str
    status : ClientStatus
    cohort_id : str
    base_digest : str
        Model that it is served.
    round_num : int
        Newest round; 0 before the first one.
    phase : Phase
        Of that round.
    deadline : datetime or None
    sent : str or None
        SHA-256 of the tensors of its update of that round; None: no update lies there.
    judged_round : int or None
        Newest round whose updates were judged; None: none was, or the client had no part in it.
    verdict, reason, detail : str or None
        What became of its update of that round.
    """

    federation: str
    client_id: str
    status: ClientStatus
    cohort_id: str
    base_digest: str
    round_num: int
    phase: Phase
    deadline: dt.datetime | None = None
    sent: str | None = None
    judged_round: int | None = None
    verdict: str | None = None
    reason: str | None = None
    detail: str | None = None


class Access(Protocol):
    """One client's way to its federation."""

    def offer(self, *, drifted: bool = False) -> Offer:
        """Return what the client trains next; with `drifted`, after it raised its flag."""

    def model(self, digest: str, *, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a model that was offered, from one on, unchecked."""

    def status(self) -> PlantStatus:
        """Return where the client stands."""

    def terms(self) -> Terms:
        """Return what the client's update has to be."""

    def deliver(
        self, message: UpdateMessage, tensors: Path, terms: Terms, *, checked: bool = True
    ) -> bool:
        """Send an update; True: the same one had been sent before, and nothing was written."""

    def request(self, request: RoundRequest) -> bool:
        """Ask for a round; True: the client had asked before, and nothing was written."""


def given_key(key: SigningKey | Path | None) -> SigningKey | None:
    """Return a key as it was given, from its file, or from the file that `KEY_VARIABLE` names.

    Raises
    ------
    InvalidConfigError
        If the file holds none.
    """
    if key is None and (named := os.environ.get(KEY_VARIABLE)):
        key = Path(named)
    return load_key(key) if isinstance(key, Path) else key


def check_round_open(message: UpdateMessage, terms: Terms) -> None:
    """Refuse a message that is not of the open round, or not the client's own.

    Raises
    ------
    InvalidUpdateError
        With its reason.
    RoundStateError
        If no round was opened yet.
    """
    expected = terms.expected
    if terms.phase is Phase.CREATED:
        raise RoundStateError(f"federation {expected.federation!r} has not opened a round yet")
    parse_message(message_bytes(message))
    _check_own_signature(message, expected)
    check_message(message, expected)
    if terms.phase is not Phase.OPEN:
        raise InvalidUpdateError(
            f"client '{message.client_id}': round {expected.round_num} is {terms.phase.value} "
            "already",
            Reason.MISSED_DEADLINE,
        )


def check_before_sending(message: UpdateMessage, tensors: Path, terms: Terms) -> None:
    """Refuse at the plant what the server would refuse at the seal; raises as `check_round_open`.

    Raises
    ------
    InvalidUpdateError
        With its reason.
    """
    check_round_open(message, terms)
    check_tensors(tensors, terms.expected)
    check_base(message, terms.expected)


def _check_own_signature(message: UpdateMessage, expected: ExpectedUpdate) -> None:
    try:
        check_sender(message, expected)
    except InvalidUpdateError as error:
        hint = {
            Reason.NOT_SIGNED: "give --key; 'clma client keygen' makes a key",
            Reason.BAD_SIGNATURE: "is its public key registered? 'clma key list' shows",
        }.get(Reason(error.reason or ""))
        if hint is None:
            raise
        raise InvalidUpdateError(f"{error}; {hint}", error.reason) from None
