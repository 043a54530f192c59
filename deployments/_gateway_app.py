"""The gateway's pages: what a plant is offered, its models, its terms, its update.

Every page under ``/v1`` is one plant's own. There is none that lists plants, cohorts or rounds.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import APIKeyHeader
from starlette.concurrency import run_in_threadpool

from clma import __version__
from clma.client.access import Offer, PlantStatus, Terms
from clma.errors import InvalidUpdateError, UnauthorizedError
from clma.ledger.federation import Federation
from clma.records import model_ref
from clma.updates.message import MAX_MESSAGE_BYTES
from clma.updates.reasons import Reason
from clma.updates.request_signing import NO_BODY, SCHEME
from clma.updates.round_request import MAX_REQUEST_BYTES, parse_request
from clma.updates.validation import limits_for
from deployments._gateway_bodies import UploadPlaces, declared_size, read_body, spool_body
from deployments._gateway_errors import REFUSALS, NotTakenError, Refusal, refuse_in_one_line
from deployments._gateway_guard import Clock, GatewayLimits, Guard, Visitor
from deployments._gateway_intake import check_room, commit_message, has_tensors, keep_tensors
from deployments._gateway_ranges import part_of

__all__ = ["create_app"]

_ROOT = "/v1/federations/{federation}/clients/{client_id}"

_signed = APIKeyHeader(
    name="Authorization",
    scheme_name=SCHEME,
    description="Made by `clma.updates.request_signing.authorize`, anew for every request.",
    auto_error=False,
)
_TAKES_A_BODY: dict[int | str, dict[str, object]] = {
    status: {"model": Refusal, "description": text}
    for status, text in {
        408: "The body comes too slowly.",
        411: "The body's size is not said.",
        413: "The body is too large; none of it was read.",
    }.items()
}


def _body_of(media_type: str) -> dict[str, object]:
    # Bodies are read by hand, so that none is read before its size and sender are known.
    schema = {"type": "object"} if media_type.endswith("json") else _BINARY
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


_BINARY = {"type": "string", "format": "binary"}
pages = APIRouter(responses={s: r for s, r in REFUSALS.items() if s not in {401, 422}})
own_pages = APIRouter(prefix=_ROOT, responses=REFUSALS)

Name = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
RoundNumber = Annotated[int, Path(ge=0, lt=10**9)]


@dataclass(frozen=True, slots=True)
class Health:
    """The gateway serves, and its store can be read."""

    status: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Tensors lie in the inbox; without their message they are no vote."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an update's message.

    Parameters
    ----------
    round_num : int
    tensors_wanted : bool
        Nothing was written: the tensors have to be sent first, then the message again.
    duplicate : bool
        The same update had been sent before; nothing was written.
    """

    round_num: int
    tensors_wanted: bool
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of a request.

    Parameters
    ----------
    duplicate : bool
        The plant had asked for this round before; nothing was written.
    """

    duplicate: bool


@dataclass(frozen=True, slots=True)
class _Gateway:
    federation: Federation
    limits: GatewayLimits
    guard: Guard
    places: UploadPlaces


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def create_app(
    federation: Federation, *, limits: GatewayLimits | None = None, clock: Clock = _now
) -> FastAPI:
    """Return the gateway of a federation as an ASGI application.

    Parameters
    ----------
    federation : Federation
    limits : GatewayLimits, optional
    clock : callable
        Returns the time, with a zone.
    """
    limits = limits or GatewayLimits()
    # The interactive pages of FastAPI load their scripts from elsewhere.
    app = FastAPI(title="clma gateway", version=__version__, docs_url=None, redoc_url=None)
    app.state.gateway = _Gateway(
        federation, limits, Guard(federation, limits, clock), UploadPlaces(limits.n_uploads)
    )
    refuse_in_one_line(app)
    app.include_router(pages)
    app.include_router(own_pages)
    return app


def _gateway(request: Request) -> _Gateway:
    found: _Gateway = request.app.state.gateway
    return found


def _visitor(
    request: Request,
    federation: Name,
    client_id: Name,
    header: Annotated[str | None, Depends(_signed)],
) -> Visitor:
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope["raw_path"].decode("latin-1")
    target = f"{path}?{query}" if query else path
    return _gateway(request).guard.admit(federation, client_id, request.method, target, header)


def _reader(visitor: Annotated[Visitor, Depends(_visitor)]) -> Visitor:
    if visitor.proof.sha256 != NO_BODY:
        raise UnauthorizedError(f"client '{visitor.client.client_id}': a page is read without body")
    return visitor


Gate = Annotated[_Gateway, Depends(_gateway)]
Reader = Annotated[Visitor, Depends(_reader)]
Writer = Annotated[Visitor, Depends(_visitor)]


@pages.get("/health")
def health(gate: Gate) -> Health:
    """Say whether the gateway can serve."""
    gate.federation.state()
    return Health("ok")


@own_pages.get("/offer")
def offer(visitor: Reader, drifted: bool = False) -> Offer:
    """Return what the plant trains next."""
    return visitor.access.offer(drifted=drifted)


@own_pages.get("/status")
def status(visitor: Reader) -> PlantStatus:
    """Return where the plant stands."""
    return visitor.access.status()


@own_pages.get("/terms")
def terms(visitor: Reader) -> Terms:
    """Return what the plant's update has to be."""
    return visitor.access.terms()


@own_pages.get(
    "/models/{digest}",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "The model."},
        206: {"content": {"application/octet-stream": {}}, "description": "A part of it."},
        304: {"description": "The plant has it."},
        416: {"model": Refusal, "description": "It has no such part."},
    },
)
def model(request: Request, gate: Gate, visitor: Reader, digest: Digest) -> Response:
    """Send a model that the plant is offered, whole or from an offset on."""
    offered = visitor.access.offer().digests() | visitor.access.offer(drifted=True).digests()
    if digest not in offered:
        raise NotTakenError(
            f"client '{visitor.client.client_id}': model {digest[:12]} is none of those offered",
            404,
        )
    tag = f'"{digest}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    key = model_ref(digest).path
    store = gate.federation.store
    part = part_of(request.headers, tag, store.info(key).size_bytes)
    return StreamingResponse(
        store.stream(key, start=part.start),
        part.status,
        headers={"ETag": tag, "Accept-Ranges": "bytes", **part.headers},
        media_type="application/octet-stream",
    )


@own_pages.put(
    "/rounds/{round_num}/tensors/{digest}",
    status_code=201,
    responses=_TAKES_A_BODY,
    openapi_extra=_body_of("application/octet-stream"),
)
async def put_tensors(
    request: Request, gate: Gate, visitor: Writer, round_num: RoundNumber, digest: Digest
) -> Kept:
    """Take the tensors of an update in; they are checked as they will be at the seal."""
    client_id = visitor.client.client_id
    if visitor.proof.sha256 != digest:
        raise NotTakenError(
            f"tensors are {digest[:12]} by the address and {visitor.proof.sha256[:12]} by the "
            "signature, wanted the same",
            400,
        )
    found = await run_in_threadpool(visitor.access.terms)
    most = limits_for(found.expected.specs).file_bytes
    declared_size(request, most)
    federation = gate.federation
    with gate.places.taken(client_id):
        known = await run_in_threadpool(has_tensors, federation, round_num, client_id, digest)
        if not known:
            kept = gate.limits.n_tensors
            await run_in_threadpool(check_room, federation, found, round_num, client_id, kept)
        async with spool_body(request, digest, most, gate.limits) as path:
            if not known:
                await run_in_threadpool(keep_tensors, federation, found, client_id, digest, path)
    return Kept(digest)


@own_pages.put("/update", responses=_TAKES_A_BODY, openapi_extra=_body_of("application/json"))
async def put_update(request: Request, gate: Gate, visitor: Writer) -> Receipt:
    """Take the message of an update in: the commit marker, if its tensors are there."""
    data = await read_body(request, visitor.proof.sha256, MAX_MESSAGE_BYTES, gate.limits)

    def commit() -> Receipt:
        found = visitor.access.terms()
        done = commit_message(gate.federation, found, data)
        return Receipt(found.expected.round_num, done is None, bool(done))

    return await run_in_threadpool(commit)


@own_pages.put("/request", responses=_TAKES_A_BODY, openapi_extra=_body_of("application/json"))
async def put_request(request: Request, gate: Gate, visitor: Writer) -> Asked:
    """Take a request for an early end of the open round; one of each plant is kept."""
    data = await read_body(request, visitor.proof.sha256, MAX_REQUEST_BYTES, gate.limits)
    asked = parse_request(data)
    client_id = visitor.client.client_id
    if asked.client_id != client_id:
        raise InvalidUpdateError(
            f"client '{client_id}': request is of client '{asked.client_id}'", Reason.BAD_CLIENT_ID
        )
    return Asked(await run_in_threadpool(visitor.access.request, asked))
