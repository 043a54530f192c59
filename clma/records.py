"""Records that cross the layers: state, sealed updates, the rows of the five tables.

State is data: every record is frozen, and a step returns new ones. Rows of the tables *are* the
decision of a round, so what is logged, stored and explained is what was decided.

Examples
--------
>>> cohort = Cohort("c0", parent=None, born_round=0, model_digest="ab" * 32)
>>> cohort.status
<CohortStatus.ACTIVE: 'active'>
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

__all__ = [
    "ArtifactRef",
    "ChoiceMemory",
    "ClientKey",
    "ClientState",
    "ClientStatus",
    "Cohort",
    "CohortStatus",
    "FederationState",
    "Move",
    "Phase",
    "SealedUpdate",
    "TensorSpec",
    "UpdateMessage",
    "cohort_number",
    "model_ref",
]

ROOT_COHORT = "c0"
"""Cohort in which every federation starts."""


def cohort_number(cohort_id: str) -> int:
    """Return n of cohort ``cn``: cohorts are numbered in the order of their birth."""
    return int(cohort_id.removeprefix("c"))


class CohortStatus(StrEnum):
    """Whether a cohort trains (`active`), is remembered (`dormant`) or lives on in another one."""

    ACTIVE = "active"
    DORMANT = "dormant"
    MERGED = "merged"


class ClientStatus(StrEnum):
    """Where a client stands after a round."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    MISSING = "missing"
    PAUSED = "paused"
    UNSTABLE = "unstable"
    FORGOTTEN = "forgotten"


class Phase(StrEnum):
    """Step of the newest round: `created` before the first one is opened."""

    CREATED = "created"
    OPEN = "open"
    SEALED = "sealed"
    COMMITTED = "committed"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, dtype and shape of one tensor of the federation's model.

    Parameters
    ----------
    name : str
    dtype : str
        As safetensors writes it: ``F32``, ``BF16``, ``I64`` ...
    shape : tuple of int
        Empty for a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A stored object by place and content.

    Parameters
    ----------
    path : str
        Key inside the federation folder, with ``/`` between parts.
    sha256 : str
        64 hexadecimal digits over the object's bytes.
    """

    path: str
    sha256: str


def model_ref(digest: str) -> ArtifactRef:
    """Return where a model of this digest lies in the federation folder."""
    return ArtifactRef(f"models/{digest}.safetensors", digest)


@dataclass(frozen=True, slots=True)
class Cohort:
    """The clients that share one model, and that model.

    Parameters
    ----------
    cohort_id : str
        Stable for the life of the federation (``c0`` is the root).
    parent : str or None
        Cohort its first members came from; None for the root.
    born_round : int
        Round that created it; 0 for the root.
    model_digest : str
        SHA-256 of the model its members train on next.
    previous_digest : str or None
        Model before the last change.
    status : CohortStatus
    origin_digest : str or None
        Model that the first members had been sent when they left `parent`: with `model_digest`
        it gives the direction in which the cohort was born.
    largest_mean_norm : float
        Largest length of its members' mean update so far, where the method keeps it (CFL).
    optimizer_digest : str or None
        SHA-256 of what the server's optimiser remembers of the cohort, stored like a model.
    learning_rate_factor : float in (0, 1]
        What the members multiply their learning rate by in the next round.
    alike_within : float
        Largest distance at which clients' data counted as alike when it was founded, where the
        method measures that (FECFL).
    birth_digest : str or None
        Model that its first members made; None where none did, and in states from before it was
        kept.
    dormant_since : int or None
        Round after which it had no member any more; None while it has some.
    alike_to : str or None
        Older cohort whose model went the same way as its own, where cohorts are merged.
    alike_rounds : int
        For how many rounds in a row.
    merged_into : str or None
        Cohort that it lives on in, where its status is `merged` and that was written down.
    """

    cohort_id: str
    parent: str | None
    born_round: int
    model_digest: str
    previous_digest: str | None = None
    status: CohortStatus = CohortStatus.ACTIVE
    origin_digest: str | None = None
    largest_mean_norm: float = 0.0
    optimizer_digest: str | None = None
    learning_rate_factor: float = 1.0
    alike_within: float = 0.0
    birth_digest: str | None = None
    dormant_since: int | None = None
    alike_to: str | None = None
    alike_rounds: int = 0
    merged_into: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A client left a cohort for another one in a round."""

    round_num: int
    left: str


@dataclass(frozen=True, slots=True)
class ChoiceMemory:
    """What a client answered when it compared other cohorts' models with its own.

    Parameters
    ----------
    leaning : str or None
        Larger cohort whose model was no worse when it was asked last: if that holds once more, the
        client goes there.
    refused : tuple of (cohort id, round)
        Models that were compared since the last move and not chosen, and when.
    """

    leaning: str | None = None
    refused: tuple[tuple[str, int], ...] = ()

    def refused_round(self, cohort_id: str) -> int | None:
        """Return when a cohort's model was refused last; None if it was not."""
        return dict(self.refused).get(cohort_id)


@dataclass(frozen=True, slots=True)
class ClientState:
    """One registered client.

    Parameters
    ----------
    client_id : str
    cohort_id : str
        Where it stands; for a quarantined client the cohort it came from.
    status : ClientStatus
    serving_digest : str
        Model that the client is sent; always one that exists.
    serving_since : int
        Round from which on it is served that model; 0 is the initial model.
    joined_round : int
        First round it may take part in.
    n_updates : int
        Accepted updates so far; 0 means that a flag has no earlier loss behind it.
    moved_round : int or None
        Round of its last move to another cohort, None if it never moved.
    origin_cohort : str or None
        Cohort it left at `moved_round`.
    unconfirmed : bool
        No update of it was accepted since the move: it is still asked whether its origin's model
        is bad on its data.
    signature_round : int or None
        Round of whose data the signature is that it was placed by, where the method asks for one.
    placed_cohort : str or None
        Where that signature placed it.
    choices : ChoiceMemory
        Of comparisons with other cohorts' models, where ``cohorting.choice`` asks for them.
    moves : tuple of Move
        Of the newest rounds, where clients that move too often are parked.
    rests_until : int
        Last round for which it is parked; see `ClientStatus.UNSTABLE`.
    """

    client_id: str
    cohort_id: str
    status: ClientStatus
    serving_digest: str
    serving_since: int = 0
    joined_round: int = 1
    n_updates: int = 0
    moved_round: int | None = None
    origin_cohort: str | None = None
    unconfirmed: bool = False
    signature_round: int | None = None
    placed_cohort: str | None = None
    choices: ChoiceMemory = ChoiceMemory()
    moves: tuple[Move, ...] = ()
    rests_until: int = 0

    def way_home(self) -> str | None:
        """Return the cohort that it goes back to if that cohort's model is not bad after all.

        For a client in quarantine that is the one it came from: nothing was found for it yet.
        """
        if self.status is ClientStatus.QUARANTINED:
            return self.cohort_id
        return self.origin_cohort if self.unconfirmed else None


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A public key that a client's updates may be signed with.

    Parameters
    ----------
    public : str
        ``ed25519:`` and the key's 32 bytes in Base64.
    added_round : int
        Newest round when it was registered.
    revoked_round : int or None
        Newest round when it was revoked: rounds that were sealed before keep what it signed.
    """

    public: str
    added_round: int = 0
    revoked_round: int | None = None


@dataclass(frozen=True, slots=True)
class FederationState:
    """All that a round needs to know of the past; the fold over the ledger's entries.

    Parameters
    ----------
    federation : str
    round_num : int
        Newest round, 0 before the first one.
    phase : Phase
        Of that round.
    clients : mapping of client_id to ClientState
    cohorts : mapping of cohort_id to Cohort
        Dormant and merged ones too: nothing that was ever served is forgotten.
    consensus_digest : str or None
        Last round's average over all accepted updates, kept only where the configuration asks for
        it (``reference = "consensus"``: Algorithm 3 as listed).
    deadline : datetime or None
        When the open round is due, in UTC; None: when somebody closes it.
    sealed : ArtifactRef or None
        The sealed inputs of the round while its phase is `sealed`.
    config : ArtifactRef or None
        The configuration in force.
    keys : mapping of client_id to tuple of ClientKey
        Apart from the clients: what a round decides of a client must not bring a key back that was
        revoked in the meantime.
    planned_cohorts : ArtifactRef or None
        Record of cohorts that were formed anew, into which clients move when the next round opens.
    """

    federation: str
    round_num: int = 0
    phase: Phase = Phase.CREATED
    clients: Mapping[str, ClientState] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    consensus_digest: str | None = None
    deadline: dt.datetime | None = None
    sealed: ArtifactRef | None = None
    config: ArtifactRef | None = None
    keys: Mapping[str, tuple[ClientKey, ...]] = field(default_factory=dict)
    planned_cohorts: ArtifactRef | None = None

    def active_cohorts(self) -> tuple[Cohort, ...]:
        """Return the cohorts that train, in the order of their birth."""
        return tuple(c for c in self.cohorts.values() if c.status is CohortStatus.ACTIVE)

    def lives_on_in(self, cohort_id: str) -> str:
        """Return the cohort that a merged one lives on in; any other one itself."""
        while (into := self.cohorts[cohort_id].merged_into) is not None:
            cohort_id = into
        return cohort_id

    def rested(self) -> FederationState:
        """Return the state with every cohort active or dormant as its members have it."""
        cohorts = {
            cohort_id: cohort if cohort.status is CohortStatus.MERGED else self._rested(cohort)
            for cohort_id, cohort in self.cohorts.items()
        }
        return replace(self, cohorts=cohorts)

    def _rested(self, cohort: Cohort) -> Cohort:
        if self.members(cohort.cohort_id):
            return replace(cohort, status=CohortStatus.ACTIVE, dormant_since=None)
        since = self.round_num if cohort.dormant_since is None else cohort.dormant_since
        return replace(cohort, status=CohortStatus.DORMANT, dormant_since=since)

    def members(self, cohort_id: str) -> tuple[str, ...]:
        """Return the sorted ids of a cohort's clients, without forgotten and quarantined ones."""
        out = {ClientStatus.FORGOTTEN, ClientStatus.QUARANTINED}
        return tuple(
            sorted(
                c.client_id
                for c in self.clients.values()
                if c.cohort_id == cohort_id and c.status not in out
            )
        )


@dataclass(frozen=True, slots=True)
class UpdateMessage:
    """The fields of ``update.json`` (design 4.3), before anything was believed.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
        ``round`` in the file.
    base_digest : str
        Model it was trained from.
    n_examples : int, >= 0
    drift_flag : bool
    tensors_sha256 : str
        Digest of ``update.safetensors``.
    created_at : str
        RFC 3339 with a zone; never decides anything.
    confirm : bool or None
        Only from a client that was moved last round: is its origin cohort's model still bad on its
        fresh data? None: not asked.
    loss : float or None
        Only where the policy shares it; finite.
    losses : mapping of digest to float
        Mean loss of every model of the client's choice on its fresh data, before training; only
        where the policy shares it (`loss_vector`).
    software : str
        Who wrote the file, for the operator's eye.
    signature : str or None
    """

    federation: str
    client_id: str
    round_num: int
    base_digest: str
    n_examples: int
    drift_flag: bool
    tensors_sha256: str
    created_at: str
    confirm: bool | None = None
    loss: float | None = None
    software: str = ""
    signature: str | None = None
    losses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealedUpdate:
    """One accepted update of a sealed round.

    Parameters
    ----------
    client_id : str
    base_digest : str
        The model that was sent to it, or that it chose of those.
    tensors : ArtifactRef
        The weights it returned.
    n_examples : int, >= 0
    drift_flag : bool
    confirm : bool or None
    loss : float or None
    losses : mapping of digest to float
        As in the message.
    """

    client_id: str
    base_digest: str
    tensors: ArtifactRef
    n_examples: int
    drift_flag: bool
    confirm: bool | None = None
    loss: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
