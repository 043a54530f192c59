"""Who may ask, and how often: signed requests, no request twice, so many a minute."""

from __future__ import annotations

import datetime as dt
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from clma.client.direct import DirectAccess, find_client
from clma.errors import UnauthorizedError, UnknownClientError, UnknownFederationError
from clma.ledger.federation import Federation
from clma.ledger.keys import printable
from clma.records import ClientState, FederationState
from clma.updates.request_signing import RequestProof, parse_authorization, signer_of_request
from clma.updates.signing import fingerprint
from deployments._gateway_errors import ClockError, TooManyRequestsError

__all__ = ["GatewayLimits", "Guard", "Visitor"]

Clock = Callable[[], dt.datetime]


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What one plant may cost.

    Parameters
    ----------
    requests_per_minute : float
        Of one plant, in the long run.
    burst : int
        Requests that it may make at once.
    window_s : float
        Largest difference between a request's time and ours; no request is taken twice in it.
    n_uploads : int
        Uploads at once, of one plant one.
    n_tensors : int
        Files of tensors that a plant may leave in one round.
    silence_s : float
        Longest wait for the next piece of a body.
    bytes_per_s : float
        Slowest upload; what takes longer, with a minute on top, is ended.
    """

    requests_per_minute: float = 120.0
    burst: int = 60
    window_s: float = 300.0
    n_uploads: int = 16
    n_tensors: int = 4
    silence_s: float = 30.0
    bytes_per_s: float = 16_000.0


@dataclass(frozen=True, slots=True)
class Visitor:
    """A plant that proved who it is.

    Parameters
    ----------
    client : ClientState
    state : FederationState
        That it was judged by.
    proof : RequestProof
    access : DirectAccess
        Its way to the federation.
    """

    client: ClientState
    state: FederationState
    proof: RequestProof
    access: DirectAccess


class Guard:
    """Lets plants in that sign with a registered key.

    Parameters
    ----------
    federation : Federation
    limits : GatewayLimits
    clock : callable
        Returns the time, with a zone.

    Notes
    -----
    What was seen before is remembered by this process alone: a second gateway takes a request that
    the first one took within the window. It does no harm, since every request may be repeated.
    """

    def __init__(self, federation: Federation, limits: GatewayLimits, clock: Clock) -> None:
        self._federation = federation
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: set[tuple[str, str]] = set()
        self._forget_at: deque[tuple[float, tuple[str, str]]] = deque()
        self._allowance: dict[str, tuple[float, float]] = {}

    def admit(
        self, federation: str, client_id: str, method: str, target: str, header: str | None
    ) -> Visitor:
        """Return who made a request.

        Parameters
        ----------
        federation, client_id : str
            As the path names them.
        method, target : str
            As they were signed.
        header : str or None
            ``Authorization``.

        Raises
        ------
        UnauthorizedError
            If no valid key of the client signed it, or it was made before. Whether there is such a
            client is not told.
        ClockError
            If it is from another time.
        TooManyRequestsError
            If the client asks too often.
        UnknownFederationError
            If the store holds another federation; told to its own clients only.
        """
        proof = parse_authorization(header)
        state = self._federation.state()
        signer = signer_of_request(proof, method, target, state.keys.get(client_id, ()))
        if signer is None:
            raise UnauthorizedError(
                f"client '{printable(client_id)}': no registered key signed {method} "
                f"{printable(target, 200)}"
            )
        if signer.revoked_round is not None:
            raise UnauthorizedError(
                f"client '{client_id}': key {fingerprint(signer.public)} was revoked in round "
                f"{signer.revoked_round}"
            )
        self._check_new(client_id, proof)
        if state.federation != federation:
            raise UnknownFederationError(
                f"federation is {state.federation!r}, not '{printable(federation)}'"
            )
        try:
            client = find_client(state, client_id)
        except UnknownClientError as error:
            raise UnauthorizedError(str(error)) from None
        return Visitor(client, state, proof, DirectAccess(self._federation, client_id))

    def _check_new(self, client_id: str, proof: RequestProof) -> None:
        now_s = self._clock().timestamp()
        if abs(now_s - proof.time_s) > self._limits.window_s:
            raise ClockError(client_id, proof.time_s - now_s, self._limits.window_s, now_s)
        name = (client_id, proof.nonce)
        with self._lock:
            while self._forget_at and self._forget_at[0][0] < now_s:
                self._seen.discard(self._forget_at.popleft()[1])
            if name in self._seen:
                raise UnauthorizedError(
                    f"client '{client_id}': the request was made before, wanted a new nonce"
                )
            self._spend(client_id, now_s)
            self._seen.add(name)
            # One from the future has to be remembered for longer than the window.
            self._forget_at.append((now_s + 2 * self._limits.window_s + 1, name))

    def _spend(self, client_id: str, now_s: float) -> None:
        per_s = self._limits.requests_per_minute / 60
        left, since = self._allowance.get(client_id, (float(self._limits.burst), now_s))
        left = min(self._limits.burst, left + max(0.0, now_s - since) * per_s)
        if left < 1:
            raise TooManyRequestsError(
                f"client '{client_id}': more than {self._limits.requests_per_minute:g} requests a "
                "minute",
                wait_s=(1 - left) / per_s,
            )
        self._allowance[client_id] = (left - 1, now_s)
