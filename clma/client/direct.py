"""A plant's way to a federation whose store it reaches itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clma.client.access import AskedModel, Offer, PlantStatus, Terms, check_before_sending
from clma.client.delivery import (
    check_in_time,
    find_own,
    find_sent,
    refuse_second,
    send_message,
    send_tensors,
)
from clma.cohorting.offers import offered_models
from clma.cohorting.questions import question_for
from clma.errors import RoundStateError, UnknownClientError
from clma.ledger.federation import Federation
from clma.ledger.inbox import expected_update
from clma.ledger.keys import printable
from clma.ledger.refusals import refusals_named
from clma.ledger.requests import deliver_request
from clma.records import ClientState, ClientStatus, FederationState, UpdateMessage, model_ref
from clma.rows import UpdateRow
from clma.updates.message import same_update
from clma.updates.round_request import RoundRequest

__all__ = ["DirectAccess", "find_client", "open_federation"]


def open_federation(url: str | Path | Federation, name: str) -> Federation:
    """Return an open federation of this name."""
    return url if isinstance(url, Federation) else Federation.open(url, name)


def find_client(state: FederationState, client_id: str) -> ClientState:
    """Return a registered client; UnknownClientError if there is none."""
    client = state.clients.get(client_id)
    if client is None or client.status is ClientStatus.FORGOTTEN:
        raise UnknownClientError(
            f"client '{printable(client_id)}' is not registered in federation {state.federation!r}"
        )
    return client


class DirectAccess:
    """Reads the ledger and writes into the inbox.

    Parameters
    ----------
    federation : Federation
    client_id : str
    """

    def __init__(self, federation: Federation, client_id: str) -> None:
        self._federation = federation
        self._client_id = client_id

    def offer(self, *, drifted: bool = False) -> Offer:
        """Return what the client trains next; with `drifted`, after it raised its flag."""
        state = self._federation.state()
        client = find_client(state, self._client_id)
        config = self._federation.config_of(state)
        question = question_for(state, client, config)
        asked = None
        if question is not None:
            digest = state.cohorts[question.cohort_id].model_digest
            asked = AskedModel(question.cohort_id, digest, question.takes)
        return Offer(
            federation=state.federation,
            client_id=client.client_id,
            round_num=state.round_num,
            cohort_id=client.cohort_id,
            base_digest=client.serving_digest,
            drift=config.drift,
            deadline=state.deadline,
            share_loss="loss" in config.privacy.share,
            asked=asked,
            choice=offered_models(state, client, config, drifted=drifted),
            choice_rule=config.choice_rule(),
            choice_on_drift=config.cohorting.choice == "all",
            proximal_mu=config.client.proximal_mu,
            learning_rate_factor=state.cohorts[client.cohort_id].learning_rate_factor,
        )

    def model(self, digest: str, *, start: int = 0) -> Iterator[bytes]:
        """Yield a model's bytes from one on, unchecked; DamagedStoreError if it is missing."""
        return self._federation.store.stream(model_ref(digest).path, start=start)

    def status(self) -> PlantStatus:
        """Return where the client stands."""
        state = self._federation.state()
        client = find_client(state, self._client_id)
        config = self._federation.config_of(state)
        expected = expected_update(state, client, config, self._federation.spec)
        sent = find_own(self._federation.store, state.round_num, client.client_id, expected)
        judged_round, row = self._judged(state)
        return PlantStatus(
            federation=state.federation,
            client_id=client.client_id,
            status=client.status,
            cohort_id=client.cohort_id,
            base_digest=client.serving_digest,
            round_num=state.round_num,
            phase=state.phase,
            deadline=state.deadline,
            sent=None if sent is None else sent.tensors_sha256,
            judged_round=judged_round,
            verdict=None if row is None else row.verdict.value,
            reason=None if row is None else row.reason,
            detail=None if row is None else row.detail,
        )

    def _judged(self, state: FederationState) -> tuple[int | None, UpdateRow | None]:
        """Return the newest round that was sealed, if the client has a row there, and that row."""
        for round_num in (state.round_num, state.round_num - 1):
            try:
                rows = self._federation.sealed_round(round_num).rows
            except RoundStateError:
                continue
            # Of one client the accepted row stands first.
            row = next((r for r in rows if r.client_id == self._client_id), None)
            return (None, None) if row is None else (round_num, row)
        return None, None

    def terms(self) -> Terms:
        """Return what the client's update has to be."""
        state = self._federation.state()
        client = find_client(state, self._client_id)
        config = self._federation.config_of(state)
        expected = expected_update(state, client, config, self._federation.spec)
        return Terms(expected, state.phase)

    def deliver(
        self, message: UpdateMessage, tensors: Path, terms: Terms, *, checked: bool = True
    ) -> bool:
        """Write an update into the inbox, unless the same one lies there already."""
        store = self._federation.store
        sent = find_sent(store, message, terms.expected)
        if sent is not None and same_update(sent.message, message):
            # The attempt before may have failed for the very reason that it was not on the disk.
            store.make_durable(sent.key)
            return True
        with refusals_named("read", tensors.name, str(tensors.parent)):
            if checked:
                check_before_sending(message, tensors, terms)
            data = tensors.read_bytes()
        if sent is not None:
            refuse_second(store, message)
        send_tensors(store, message, data)
        duplicate = send_message(store, message, terms.expected)
        check_in_time(self._federation, message)
        return duplicate

    def request(self, request: RoundRequest) -> bool:
        """Write a request, unless the client asked for this round before."""
        state = self._federation.state()
        find_client(state, self._client_id)
        config = self._federation.config_of(state)
        return deliver_request(self._federation.store, request, state, config)
