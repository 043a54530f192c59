"""A federation in its folder: create, open, and the steps of a round's life.

``created -> open -> sealed -> committed | held -> open ...``: each arrow is one entry of the chain,
and taking it twice is taking it once. Everything between *sealed* and *committed* is a pure
function (`clma.round`); this module only writes down what went in and what came out.

Examples
--------
>>> import tempfile
>>> import numpy as np
>>> from clma.config import preset_config
>>> from clma.parameters.tensor_file import serialize_tensors
>>> base = Path(tempfile.mkdtemp()) / "base.safetensors"
>>> _ = base.write_bytes(serialize_tensors({"w": np.zeros(2, np.float32)}))
>>> north = Federation.create("memory://north", preset_config("north"), base, ["plant-a"])
>>> now = dt.datetime(2026, 1, 5, 20, tzinfo=dt.UTC)
>>> north.open_round(now=now).phase.value
'open'
>>> [row.reason for row in north.seal_round(now=now, force=True).rows]
['MISSED_DEADLINE']
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from clma.config import FederationConfig
from clma.errors import (
    ConflictError,
    DamagedStoreError,
    RoundStateError,
    StorageError,
    UnknownFederationError,
)
from clma.ledger.base_model import read_base_model
from clma.ledger.chain import Chain, EntryKind
from clma.ledger.checkpoint import CHECKPOINT
from clma.ledger.journal import Payload
from clma.ledger.keys import (
    CHECKPOINTS_PREFIX,
    CONFIGS_PREFIX,
    LEASES_PREFIX,
    LEDGER_PREFIX,
    inbox_prefix,
    round_prefix,
    table_key,
)
from clma.ledger.registry import register_clients, register_keys, revoke_key
from clma.ledger.requests import tidy_requests
from clma.ledger.sealed import tidy_inbox, write_sealed
from clma.ledger.settings import FederationSettings, write_config
from clma.ledger.state import changes
from clma.ledger.store import Store
from clma.parameters.output_layer import output_tensors
from clma.parameters.tensor_file import TensorFile
from clma.records import (
    ROOT_COHORT,
    ArtifactRef,
    Cohort,
    FederationState,
    Phase,
    TensorSpec,
    model_ref,
)
from clma.rows import RoundDecision, SealedRound

__all__ = ["Federation"]

_MAX_SEALS = 20
"""Other writers that may be first while the inbox is judged."""


class Federation(FederationSettings):
    """One federation; made by `Federation.create` or `Federation.open`.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._specs: tuple[TensorSpec, ...] | None = None

    @classmethod
    def create(
        cls,
        url: str | Path,
        config: FederationConfig,
        base: Path,
        client_ids: Iterable[str] = (),
        *,
        public_keys: Mapping[str, str] | None = None,
        now: dt.datetime | None = None,
    ) -> Federation:
        """Make a federation's folder.

        Parameters
        ----------
        url : str or Path
            As `Store.open` takes it.
        config : FederationConfig
        base : Path
            Safetensors file of the model that all clients start from.
        client_ids : iterable of str
            Clients to register with it.
        public_keys : mapping of client_id to str, optional
            ``ed25519:...`` of the clients that have one by now.
        now : datetime, optional
            With a zone; only written down.

        Raises
        ------
        ConflictError
            If the folder already holds a federation, or two ids differ in case only.
        InvalidConfigError
            If the base model or a public key cannot be used, or the configuration names an output
            layer that the model lacks.
        UnknownClientError
            If an id is not allowed.
        """
        store = Store.open(url)
        data = read_base_model(base)
        with TensorFile(base) as file:
            output_tensors(file.specs, config.cohorting)
        digest = hashlib.sha256(data).hexdigest()
        clients = register_clients({}, client_ids, digest)
        keys = register_keys({}, public_keys or {}, clients, round_num=0)
        if Chain(store).read():
            raise ConflictError(f"store {store.url} already holds a federation")
        # What a killed attempt left is used again or never named; the entry decides.
        config_ref = write_config(store, config)
        base_ref = store.put_once(model_ref(digest).path, data)
        state = FederationState(
            config.federation,
            clients=clients,
            cohorts={ROOT_COHORT: Cohort(ROOT_COHORT, None, 0, digest)},
            config=config_ref,
            keys=keys,
        )
        payload = {"base": _ref_json(base_ref), **changes(FederationState(""), state)}
        try:
            Chain(store).append(EntryKind.FEDERATION_CREATED, payload, expected_number=0, at=now)
        except ConflictError:
            raise ConflictError(f"store {store.url} already holds a federation") from None
        made = cls.open(url, config.federation)
        made.write_operators_copy()
        return made

    @classmethod
    def open(cls, url: str | Path, name: str | None = None) -> Federation:
        """Open a federation's folder.

        Parameters
        ----------
        url : str or Path
        name : str, optional
            The federation that is wanted. Default: the one that is there.

        Raises
        ------
        UnknownFederationError
            If the folder holds none, or another one.
        DamagedStoreError
            If its configuration is not the recorded one.
        """
        store = Store.open(url)
        federation = cls(store)
        if not federation.journal.n_entries():
            if store.list(CONFIGS_PREFIX):
                raise UnknownFederationError(
                    f"store {store.url} holds a federation whose creation was not finished; "
                    "run 'clma init' again"
                )
            raise UnknownFederationError(
                f"store {store.url} holds no federation; make one with 'clma init'"
            )
        if name is not None and name != federation.name:
            raise UnknownFederationError(
                f"store {store.url} holds federation {federation.name!r}, not {name!r}"
            )
        federation.config_of(federation.state())
        return federation

    @property
    def name(self) -> str:
        """The federation's name."""
        return self.state().federation

    @property
    def spec(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes that every model of the federation has."""
        if self._specs is None:
            # Any of its models will do; the first one is as far away as the first entry.
            digest = self.state().cohorts[ROOT_COHORT].model_digest
            with self.open_tensors(model_ref(digest)) as file:
                self._specs = file.specs
        return self._specs

    def register_client(
        self,
        client_id: str,
        *,
        public_key: str | None = None,
        now: dt.datetime | None = None,
    ) -> FederationState:
        """Register a client; it starts in the root cohort, in the open round or else the next one.

        Parameters
        ----------
        client_id : str
        public_key : str, optional
            ``ed25519:...``; it can be added later.
        now : datetime, optional
            With a zone; only written down.

        Raises
        ------
        UnknownClientError
            If the id is not allowed.
        InvalidConfigError
            If the key is none.
        ConflictError
            If the id is registered already, in whatever case, or the key is another client's.
        """

        def build(state: FederationState) -> Payload:
            joined = state.round_num + (state.phase is not Phase.OPEN)
            digest = state.cohorts[ROOT_COHORT].model_digest
            clients = register_clients(
                state.clients, [client_id], digest, joined_round=joined, serving_since=joined
            )
            new = {} if public_key is None else {client_id: public_key}
            keys = register_keys(state.keys, new, clients, round_num=state.round_num)
            return changes(state, dataclasses.replace(state, clients=clients, keys=keys))

        return self.journal.step(EntryKind.CLIENT_REGISTERED, build, now)

    def add_key(
        self, client_id: str, public_key: str, *, now: dt.datetime | None = None
    ) -> FederationState:
        """Register a further key of a client; the keys it has stay valid until they are revoked.

        Raises
        ------
        UnknownClientError
            If the client is not registered.
        InvalidConfigError
            If the key is none.
        ConflictError
            If the key was revoked, or is another client's.
        """

        def build(state: FederationState) -> Payload | None:
            keys = register_keys(
                state.keys, {client_id: public_key}, state.clients, round_num=state.round_num
            )
            return changes(state, dataclasses.replace(state, keys=keys)) or None

        return self.journal.step(EntryKind.CLIENT_KEY_ADDED, build, now)

    def revoke_key(
        self, client_id: str, key_id: str, *, now: dt.datetime | None = None
    ) -> FederationState:
        """Refuse a key from now on; what it signed for rounds that are sealed stays used.

        Parameters
        ----------
        client_id : str
        key_id : str
            Fingerprint of the key, or the public key itself.
        now : datetime, optional
            With a zone; only written down.

        Raises
        ------
        UnknownClientError
            If the client is not registered, or has no such key.
        """

        def build(state: FederationState) -> Payload | None:
            keys = revoke_key(state.keys, client_id, key_id, round_num=state.round_num)
            return changes(state, dataclasses.replace(state, keys=keys)) or None

        return self.journal.step(EntryKind.CLIENT_KEY_REVOKED, build, now)

    def open_round(
        self,
        *,
        now: dt.datetime,
        moves: FederationState | None = None,
        onboarding: Payload | None = None,
        keep_deadline: bool = False,
    ) -> FederationState:
        """Open the next round; if one is open already, nothing changes.

        Parameters
        ----------
        now : datetime
            With a zone; the deadline is ``round.hours_open`` later.
        moves : FederationState, optional
            A state whose clients and cohorts hold from this round on; others stay as they are.
        onboarding : mapping, optional
            What clients were placed by, as evidence. Its ``record``, if it is that of the planned
            cohorts, says that the plan is carried out.
        keep_deadline : bool
            The newest round was closed before its time: this one is due when that one was.

        Raises
        ------
        RoundStateError
            If a round is sealed and neither committed nor held.
        """
        evidence = {} if onboarding is None else {"onboarding": onboarding}
        deadline = _utc(now) + dt.timedelta(hours=self.config.round.hours_open)

        def build(state: FederationState) -> Payload | None:
            if state.phase is Phase.OPEN:
                return None
            if state.phase is Phase.SEALED:
                raise RoundStateError(f"round {state.round_num} is sealed: commit or hold it first")
            plan = state.planned_cohorts
            is_done = plan and onboarding and onboarding.get("record") == _ref_json(plan)
            opened = dataclasses.replace(
                state,
                clients={**state.clients, **(moves or state).clients},
                cohorts={**state.cohorts, **(moves or state).cohorts},
                round_num=state.round_num + 1,
                phase=Phase.OPEN,
                deadline=_kept(state.deadline, deadline, now) if keep_deadline else deadline,
                sealed=None,
                planned_cohorts=None if is_done else plan,
            )
            return {"round": opened.round_num, **evidence, **changes(state, opened)}

        opened = self.journal.step(EntryKind.ROUND_OPENED, build, now)
        # Only to save space: a file that cannot be deleted must not cost the night.
        with contextlib.suppress(StorageError, DamagedStoreError):
            before = self._sealed_before(opened)
            if before is not None:
                tidy_inbox(self.store, before)
            tidy_requests(self.store, opened.round_num - 1)
        return opened

    def seal_round(
        self, *, now: dt.datetime, force: bool = False, round_num: int | None = None
    ) -> SealedRound:
        """Fix the inputs of the open round, once; a sealed round is returned as it was recorded.

        Parameters
        ----------
        now : datetime
            With a zone; compared with the deadline.
        force : bool
            Take what is there now, before the deadline.
        round_num : int, optional
            The round that is meant: if another writer closed it and opened the next one meanwhile,
            that next one stays open.

        Raises
        ------
        RoundStateError
            If no round is open or it is not due yet; says when. If another round is open than
            `round_num`, and that one was never sealed.
        """
        for _ in range(_MAX_SEALS):
            newest = self.journal.newest()
            state, n_entries = newest.state, newest.number + 1
            if round_num is None:
                round_num = state.round_num
            if state.round_num != round_num:
                # Another writer sealed it, and may be rounds ahead by now.
                return self.sealed_round(round_num)
            if state.phase is Phase.SEALED:
                return self.load_sealed()
            self._check_due(state, _utc(now), force)
            self.sweep_drafts()
            before = self._sealed_before(state)
            config = self.config_of(state)
            ref = write_sealed(self.store, state, config, self.spec, before, basis=n_entries)
            sealed = dataclasses.replace(state, phase=Phase.SEALED, sealed=ref)
            payload = {"round": round_num, **changes(state, sealed)}
            try:
                self.journal.append(EntryKind.ROUND_SEALED, payload, n_entries, now)
            except ConflictError:
                # By another writer, who may have decided it by now. Otherwise a client, a key or a
                # setting was changed: what lies there is judged anew, by what holds now.
                if self.journal.find(EntryKind.ROUND_SEALED, round_num) is None:
                    continue
            return self.sealed_round(round_num)
        raise ConflictError(f"{self.store.url}: the ledger was changed again and again")

    def commit_round(
        self,
        decision: RoundDecision,
        after: FederationState,
        *,
        now: dt.datetime | None = None,
    ) -> FederationState:
        """Record a round's decision: the five tables, then the one entry that makes it true.

        Parameters
        ----------
        decision : RoundDecision
        after : FederationState
            The next state, made from the state after the seal. Clients that were registered since
            stay as they are.
        now : datetime, optional
            With a zone; only written down.

        Raises
        ------
        RoundStateError
            If the round is not sealed.
        ConflictError
            If another decision of this round is recorded already.
        """
        # A plant's path never commits, and plants have no pyarrow.
        from clma.ledger.tables import decision_tables

        round_num = decision.round_num
        at_seal = self.state_at_seal(round_num)
        committed = dataclasses.replace(after, phase=Phase.COMMITTED, sealed=None)
        tables = {
            name: self.store.put_once(table_key(round_num, name), data)
            for name, data in decision_tables(self.name, decision).items()
        }
        payload = {
            "round": round_num,
            "tables": {name: _ref_json(ref) for name, ref in tables.items()},
            **changes(at_seal, committed),
        }

        def build(state: FederationState) -> Payload | None:
            if (state.phase, state.round_num) == (Phase.SEALED, round_num):
                return payload
            recorded = self.journal.find(EntryKind.ROUND_COMMITTED, round_num)
            if recorded is None:
                raise RoundStateError(f"round {round_num} is {state.phase.value}, wanted sealed")
            if {k: v for k, v in recorded.payload.items() if k != CHECKPOINT} != payload:
                raise ConflictError(f"round {round_num} is committed with another decision")
            return None

        return self.journal.step(EntryKind.ROUND_COMMITTED, build, now)

    def hold_round(
        self, reason: str, *, now: dt.datetime | None = None, round_num: int | None = None
    ) -> FederationState:
        """Record that the newest round publishes nothing; a held round stays as it is.

        Parameters
        ----------
        reason : str
            One line for the operator.
        now : datetime, optional
            With a zone; only written down.
        round_num : int, optional
            The round that is meant: if another writer held it and opened the next one meanwhile,
            that next one stays open.

        Raises
        ------
        RoundStateError
            If it is neither open nor sealed.
        """

        def build(state: FederationState) -> Payload | None:
            if state.phase is Phase.HELD or round_num not in {None, state.round_num}:
                return None
            if state.phase not in {Phase.OPEN, Phase.SEALED}:
                raise RoundStateError(f"round {state.round_num} is {state.phase.value} already")
            held = dataclasses.replace(state, phase=Phase.HELD, sealed=None)
            return {"round": state.round_num, "reason": reason, **changes(state, held)}

        return self.journal.step(EntryKind.ROUND_HELD, build, now)

    def sweep_drafts(self) -> int:
        """Delete what killed writers left half-written; returns how many files.

        Of the rounds only the newest two are looked at: no night writes to older ones, and a year
        of them is millions of files.
        """
        newest = self.state().round_num
        rounds = [round_prefix(r) for r in (newest - 1, newest) if r > 0]
        places = (LEDGER_PREFIX, CHECKPOINTS_PREFIX, CONFIGS_PREFIX, LEASES_PREFIX, "models")
        n_deleted = sum(map(self.store.sweep, (*places, *rounds, inbox_prefix(newest))))
        return n_deleted + self.store.sweep(deep=False)

    def _check_due(self, state: FederationState, now: dt.datetime, force: bool) -> None:
        if state.phase is not Phase.OPEN:
            raise RoundStateError(f"round {state.round_num} is {state.phase.value}, wanted open")
        if not force and (state.deadline is None or now < state.deadline):
            deadline = state.deadline
            due = "when it is forced" if deadline is None else f"at {deadline:%Y-%m-%d %H:%M} UTC"
            raise RoundStateError(f"round {state.round_num} is due {due}; force seals it now")


def _ref_json(ref: ArtifactRef) -> Payload:
    return {"path": ref.path, "sha256": ref.sha256}


def _kept(before: dt.datetime | None, otherwise: dt.datetime, now: dt.datetime) -> dt.datetime:
    return before if before is not None and before > now else otherwise


def _utc(now: dt.datetime) -> dt.datetime:
    if now.tzinfo is None:
        raise ValueError(f"now is {now.isoformat()} without a zone, wanted one")
    return now.astimezone(dt.UTC)
