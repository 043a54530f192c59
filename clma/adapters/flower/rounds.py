"""The federation behind the strategy: nodes are its clients, replies its inbox.

A strategy without a store keeps its federation in memory, and of that only what the next round
needs. With one, everything is recorded as by the nightly rounds, and a server app that was killed
goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import tempfile
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord

from clma.adapters.flower.exchange import Assignment, ClosedRound, node_name
from clma.adapters.flower.memory import forget_past
from clma.adapters.flower.options import check_settings, with_layer_order
from clma.adapters.flower.records import to_record, to_tensors
from clma.adapters.flower.replies import TrainReply
from clma.client.submit import submit
from clma.cohorting.questions import question_for
from clma.config import FederationConfig, changed_settings
from clma.errors import (
    InvalidUpdateError,
    RoundHeldError,
    ShapeMismatchError,
    UnknownFederationError,
)
from clma.ledger.federation import Federation
from clma.ledger.store import Store
from clma.parameters.tensor_file import serialize_tensors, specs_of
from clma.records import (
    ROOT_COHORT,
    ClientState,
    ClientStatus,
    FederationState,
    Phase,
    model_ref,
)
from clma.updates.reasons import Reason

__all__ = ["Rounds"]

_LOG = logging.getLogger("flwr")
_AWAY = frozenset({ClientStatus.PAUSED, ClientStatus.FORGOTTEN})


class Rounds:
    """Opens, fills and closes the rounds of one federation.

    Parameters
    ----------
    config : FederationConfig
        In force for a federation that is made here.
    store : str or Path, optional
        As `clma.ledger.store.Store.open` takes it. Default: memory.
    name_of : callable
        Client id of a node.
    """

    def __init__(
        self,
        config: FederationConfig,
        store: str | Path | None = None,
        name_of: Callable[[int], str] = node_name,
    ) -> None:
        self._config = config
        self._url: str | Path = f"memory://flower-{uuid.uuid4()}" if store is None else store
        self._in_memory = store is None
        self._name_of = name_of
        self._order: tuple[str, ...] = ()
        self._federation: Federation | None = None

    @property
    def federation(self) -> Federation:
        """The federation; UnknownFederationError before `begin`."""
        if self._federation is None:
            raise UnknownFederationError("no round has begun yet: the strategy has no federation")
        return self._federation

    @property
    def has_begun(self) -> bool:
        """Tell whether there is a federation by now."""
        return self._federation is not None

    def begin(self, arrays: ArrayRecord, node_ids: Iterable[int]) -> FederationState:
        """Make or open the federation, know the nodes, and see to it that a round is open.

        A round that was sealed when its server app was killed is decided first.

        Parameters
        ----------
        arrays : ArrayRecord
            Model that a new federation starts from; of one that is there already, it has to have
            the names and shapes.
        node_ids : iterable of int
            Nodes that take part; those that are new become clients.

        Raises
        ------
        ShapeMismatchError
            If the store's federation has another model.
        InvalidConfigError
            If its settings ask for more than Flower's messages carry.
        """
        names = sorted(self._name_of(node_id) for node_id in node_ids)
        if self._federation is None:
            self._order = tuple(arrays)
            self._federation = self._opened(arrays) or self._made(arrays, names)
            check_settings(self._federation.config)
        federation = self._federation
        known = federation.state().clients
        for name in names:
            if name not in known:
                federation.register_client(name)
        return self._open_round(federation)

    def assignments(self, node_ids: Sequence[int]) -> dict[int, Assignment]:
        """Return what nodes are sent now; those that are paused or forgotten are left out."""
        federation = self.federation
        state = federation.state()
        found = {node_id: state.clients.get(self._name_of(node_id)) for node_id in node_ids}
        return {
            node_id: self._assignment(state, self._name_of(node_id), client)
            for node_id, client in found.items()
            if client is None or client.status not in _AWAY
        }

    def model(self, digest: str) -> ArrayRecord:
        """Return a model of the federation, its arrays in the order of the first one."""
        with self.federation.open_tensors(model_ref(digest)) as file:
            tensors = {spec.name: np.array(file.read(spec.name)) for spec in file.specs}
        return to_record(tensors, self._order)

    def submit(self, reply: TrainReply, assignment: Assignment) -> None:
        """Put a reply into the inbox of the open round.

        Raises
        ------
        InvalidUpdateError
            If its arrays cannot be read, it is of another round, or another reply of the node was
            there first.
        """
        federation = self.federation
        newest = federation.state().round_num
        if reply.round_num not in {None, newest}:
            raise InvalidUpdateError(
                f"trained for round {reply.round_num}, round {newest} is open", Reason.STALE_ROUND
            )
        data = serialize_tensors(to_tensors(reply.arrays, federation.spec))
        with tempfile.TemporaryDirectory(prefix="clma-") as folder:
            tensors = Path(folder) / "update.safetensors"
            tensors.write_bytes(data)
            submit(
                federation,
                federation.name,
                assignment.client_id,
                tensors=tensors,
                n_examples=reply.n_examples,
                drift_flag=bool(reply.drift_flag),
                confirm=reply.confirm if assignment.origin is not None else None,
                loss=reply.loss,
                base_digest=assignment.model,
                checked=False,
            )

    def close(self) -> ClosedRound:
        """Close the open round with what is in its inbox, and open the next one."""
        from clma.night import close_round

        federation = self.federation
        round_num = federation.state().round_num
        outcome, held = None, ""
        try:
            outcome = close_round(federation, now=_now(), force=True)
        except RoundHeldError as error:
            held = str(error)
        closed = ClosedRound(
            before=federation.state_at_seal(round_num),
            outcome=outcome,
            rows=federation.sealed_round(round_num).rows,
            held=held,
        )
        if self._in_memory:
            forget_past(federation, round_num)
        return closed

    def _opened(self, arrays: ArrayRecord) -> Federation | None:
        """Return the federation that is in the store, None if there is none yet."""
        try:
            federation = Federation.open(self._url, self._config.federation)
        except UnknownFederationError:
            if Store.open(self._url).list("ledger"):
                raise
            return None
        asked = with_layer_order(self._config, tuple(arrays))
        _log_other_settings(asked, federation.config)
        got, wanted = specs_of(to_tensors(arrays, federation.spec)), federation.spec
        if {s.name: s for s in got} != {s.name: s for s in wanted}:
            raise ShapeMismatchError(
                f"the initial arrays have other names, dtypes or shapes than federation "
                f"{federation.name!r} in {self._url}"
            )
        return federation

    def _made(self, arrays: ArrayRecord, names: Sequence[str]) -> Federation:
        with tempfile.TemporaryDirectory(prefix="clma-") as folder:
            base = Path(folder) / "initial.safetensors"
            base.write_bytes(serialize_tensors(to_tensors(arrays)))
            config = with_layer_order(self._config, tuple(arrays))
            return Federation.create(self._url, config, base, names)

    def _open_round(self, federation: Federation) -> FederationState:
        from clma.night import close_round, open_next_round

        state = federation.state()
        if state.phase is Phase.SEALED:
            with contextlib.suppress(RoundHeldError):
                close_round(federation, now=_now(), force=True)
            state = federation.state()
        return state if state.phase is Phase.OPEN else open_next_round(federation, now=_now())

    def _assignment(
        self, state: FederationState, name: str, client: ClientState | None
    ) -> Assignment:
        if client is None:
            return Assignment(name, ROOT_COHORT, state.cohorts[ROOT_COHORT].model_digest)
        question = question_for(state, client, self.federation.config)
        cohort = state.cohorts[client.cohort_id]
        return Assignment(
            client_id=name,
            cohort_id=client.cohort_id,
            model=client.serving_digest,
            origin=None if question is None else state.cohorts[question.cohort_id].model_digest,
            learning_rate_factor=cohort.learning_rate_factor,
        )


def _log_other_settings(asked: FederationConfig, in_force: FederationConfig) -> None:
    for name, (here, there) in changed_settings(asked, in_force).items():
        if name != "preset":
            _LOG.warning(
                "federation %s has %s = %s, not %s; 'clma configure' changes it",
                in_force.federation,
                name,
                there,
                here,
            )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
