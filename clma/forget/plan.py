"""What forgetting a client changes, worked out before anything is written."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clma.client.direct import find_client
from clma.errors import RoundStateError
from clma.forget.influence import (
    InfluencedModel,
    influenced_models,
    models_without,
)
from clma.forget.rewrite import digest_of, rewritten
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.erasure import NewModel, payload_without
from clma.ledger.federation import Federation
from clma.ledger.inbox import MESSAGE_FILE
from clma.ledger.keys import (
    CHECKPOINTS_PREFIX,
    CONFIGS_PREFIX,
    check_key,
    inbox_prefix,
    is_tensors_of,
    signatures_of,
    table_key,
    update_key,
)
from clma.ledger.state import changes, without_client
from clma.ledger.tables import TABLE_NAMES
from clma.records import (
    ClientState,
    ClientStatus,
    Cohort,
    FederationState,
    Phase,
    model_ref,
)

__all__ = ["ForgetPlan", "Forgetting", "plan_of"]


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What forgetting a client changes.

    Parameters
    ----------
    client_id : str
    pseudonym : str
        What older entries of the ledger call it from then on.
    influenced : tuple of InfluencedModel
    removed : tuple of str
        Keys of objects that are deleted.
    replaced : mapping of key to SHA-256
        Tables, sealed inputs and configurations that are rewritten.
    redacted : mapping of int to SHA-256
        Ledger entries that are redacted.
    resubmit : tuple of client id
        Clients whose update of the open round was trained from a model that is made again: they
        have to pull, train and send once more.
    """

    client_id: str
    pseudonym: str
    influenced: tuple[InfluencedModel, ...]
    removed: tuple[str, ...]
    replaced: Mapping[str, str]
    redacted: Mapping[int, str]
    resubmit: tuple[str, ...]


class Forgetting:
    """Works out what forgetting a client changes, from one state of the ledger.

    Parameters
    ----------
    federation : Federation
    client_id : str
    reaggregate : bool
        Make the models that its update went into again without it.
    save_model : callable
        Stores a model, or only says what its digest is.

    Raises
    ------
    UnknownClientError
        If the client is not registered.
    RoundStateError
        If a round is sealed and not decided.
    """

    def __init__(
        self,
        federation: Federation,
        client_id: str,
        reaggregate: bool,
        save_model: Callable[[bytes], str],
    ) -> None:
        self._federation = federation
        self._store = federation.store
        self._client_id = client_id
        self._state = federation.state()
        self._client = find_client(self._state, client_id)
        if self._state.phase is Phase.SEALED:
            raise RoundStateError(
                f"round {self._state.round_num} is sealed: run the night, then forget {client_id!r}"
            )
        self._pseudonym = f"forgotten-{secrets.token_hex(6)}"
        self._influenced = tuple(influenced_models(federation, client_id))
        self._models: dict[str, NewModel] = {}
        if reaggregate:
            self._models = models_without(federation, client_id, self._influenced, save_model)

    def plan(self) -> ForgetPlan:
        """Return everything that changes."""
        resubmit = self._resubmit()
        return ForgetPlan(
            client_id=self._client_id,
            pseudonym=self._pseudonym,
            influenced=tuple(
                dataclasses.replace(m, new_digest=self._models[m.model_digest].digest)
                if m.model_digest in self._models
                else m
                for m in self._influenced
            ),
            removed=tuple(sorted({*self._removed(), *self._sent_by(resubmit)})),
            replaced=dict(sorted(self._replaced())),
            redacted=dict(self._redacted()),
            resubmit=resubmit,
        )

    def payload(self, plan: ForgetPlan) -> dict[str, Any]:
        """Return the payload of the entry that makes a plan true."""
        return {
            "forgotten": {"client_id": plan.client_id, "pseudonym": plan.pseudonym},
            "influenced": [dataclasses.asdict(m) for m in plan.influenced],
            "models": {old: dataclasses.asdict(new) for old, new in self._models.items()},
            "removed": list(plan.removed),
            "replaced": dict(plan.replaced),
            "redacted": {str(number): digest for number, digest in plan.redacted.items()},
            "resubmit": list(plan.resubmit),
            **changes(without_client(self._state, self._client_id), self._after()),
        }

    def _entries(self) -> tuple[Entry, ...]:
        return self._federation.entries()

    def _mapped(self, digest: str | None) -> str | None:
        new = self._models.get(digest or "")
        return digest if new is None else new.digest

    def _after(self) -> FederationState:
        state = self._state
        influenced = {m.cohort_id for m in self._influenced}
        cohorts = {
            cohort_id: dataclasses.replace(
                cohort if cohort_id not in influenced else _without_memory(cohort),
                model_digest=self._mapped(cohort.model_digest) or cohort.model_digest,
                previous_digest=self._mapped(cohort.previous_digest),
                origin_digest=self._mapped(cohort.origin_digest),
                birth_digest=self._mapped(cohort.birth_digest),
            )
            for cohort_id, cohort in state.cohorts.items()
        }
        clients = {
            client_id: self._client_after(client)
            for client_id, client in state.clients.items()
            if client_id != self._client_id
        }
        clients[self._pseudonym] = dataclasses.replace(
            self._client_after(self._client),
            client_id=self._pseudonym,
            status=ClientStatus.FORGOTTEN,
        )
        keys = {i: k for i, k in state.keys.items() if i != self._client_id}
        return dataclasses.replace(
            state,
            clients=dict(sorted(clients.items())),
            cohorts=cohorts,
            keys=keys,
            consensus_digest=self._mapped(state.consensus_digest),
        ).rested()

    def _client_after(self, client: ClientState) -> ClientState:
        digest = self._mapped(client.serving_digest) or client.serving_digest
        if digest == client.serving_digest:
            return client
        since = self._state.round_num + (self._state.phase is not Phase.OPEN)
        return dataclasses.replace(client, serving_digest=digest, serving_since=since)

    def _resubmit(self) -> tuple[str, ...]:
        if self._state.phase is not Phase.OPEN:
            return ()
        changed = (c for c in self._state.clients.values() if c.serving_digest in self._models)
        return tuple(
            sorted(
                c.client_id
                for c in changed
                if c.client_id != self._client_id
                and self._store.exists(update_key(self._state.round_num, c.client_id, MESSAGE_FILE))
            )
        )

    def _sent_by(self, client_ids: tuple[str, ...]) -> Iterator[str]:
        for client_id in client_ids:
            yield from self._store.list(f"{inbox_prefix(self._state.round_num)}/{client_id}")

    def _removed(self) -> Iterator[str]:
        for key in (*self._store.list("inbox"), *self._store.list("requests")):
            if key.split("/")[2:3] == [self._client_id]:
                yield check_key(key)
        yield from map(check_key, self._store.list(signatures_of(self._client_id)))
        named, quoted = self._named_records(), json.dumps(self._client_id).encode()
        for key in self._store.list("rounds"):
            parts = key.split("/")
            # What a night noted down on its way, or a killed seal left: no entry names it.
            is_note = key.endswith(".json") and key not in named
            is_theirs = parts[2] in _TENSORS and is_tensors_of(parts[3], self._client_id)
            if is_theirs or (is_note and quoted in self._store.get(key)):
                yield key
        yield from map(check_key, self._store.list(CHECKPOINTS_PREFIX))
        needed = {new.digest for new in self._models.values()}
        yield from (model_ref(digest).path for digest in self._models if digest not in needed)
        kept = {cohort.optimizer_digest for cohort in self._after().cohorts.values()}
        yield from (model_ref(digest).path for digest in self._memories() if digest not in kept)

    def _memories(self) -> Iterator[str]:
        """Yield what the server's optimiser remembered of a cohort since the client voted there."""
        first: dict[str, int] = {}
        for model in self._influenced:
            first.setdefault(model.cohort_id, model.round_num)
        for round_num in self._federation.committed_rounds():
            if round_num >= min(first.values(), default=round_num + 1):
                cohorts = self._federation.state_at_commit(round_num).cohorts
                for cohort_id, since in first.items():
                    if since <= round_num and (known := cohorts[cohort_id].optimizer_digest):
                        yield known

    def _named_records(self) -> set[str]:
        found = {
            EntryKind.ROUND_SEALED: lambda payload: payload["sealed"],
            EntryKind.COHORTS_PLANNED: lambda payload: payload["planned_cohorts"],
            EntryKind.ROUND_OPENED: lambda payload: payload.get("onboarding", {}).get("record"),
        }
        refs = (found[e.kind](e.payload) for e in self._entries() if e.kind in found)
        return {ref["path"] for ref in refs if ref is not None}

    def _replaced(self) -> Iterator[tuple[str, str]]:
        keys = [
            table_key(r, name) for r in self._federation.committed_rounds() for name in TABLE_NAMES
        ]
        for key in (*keys, *self._named_records(), *self._store.list(CONFIGS_PREFIX)):
            data = self._store.get(key)
            new = rewritten(self._federation, key, self._client_id, self._models)
            if new != data:
                yield key, digest_of(new)

    def _redacted(self) -> Iterator[tuple[int, str]]:
        for entry in self._entries():
            if entry.kind is not EntryKind.CLIENT_FORGOTTEN:
                payload = payload_without(entry.payload, self._client_id, self._pseudonym)
                if payload != entry.payload:
                    data = self._federation.journal.redact(entry.number, payload)
                    yield entry.number, digest_of(data)


_TENSORS = frozenset({"updates", "signatures"})
"""Folders of a round that hold tensors of clients."""


def _without_memory(cohort: Cohort) -> Cohort:
    # Every later round adds to it, so no part of it is anybody's alone.
    return dataclasses.replace(cohort, optimizer_digest=None, learning_rate_factor=1.0)


def plan_of(entry: Entry) -> ForgetPlan:
    """Read a plan back from the entry that made it true."""
    payload = entry.payload
    return ForgetPlan(
        client_id=payload["forgotten"]["client_id"],
        pseudonym=payload["forgotten"]["pseudonym"],
        influenced=tuple(InfluencedModel(**m) for m in payload["influenced"]),
        removed=tuple(payload["removed"]),
        replaced=payload["replaced"],
        redacted={int(number): digest for number, digest in payload["redacted"].items()},
        resubmit=tuple(payload["resubmit"]),
    )
