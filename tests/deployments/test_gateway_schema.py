"""Every page does what its description says, for whatever is sent to it (schemathesis)."""

from __future__ import annotations

import datetime as dt
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from clma.updates.request_signing import authorize
from deployments._gateway_app import create_app
from deployments._gateway_guard import GatewayLimits
from tests.deployments.gateway_site import key_of, on_loopback, signed_fleet

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
_checks = pytest.importorskip("schemathesis.specs.openapi.checks")

# What needs a right signature and digest cannot be told from the description alone: the checks that
# take every described request for a good one are left out.
_ANSWERS = [
    _checks.status_code_conformance,
    _checks.content_type_conformance,
    _checks.response_headers_conformance,
    _checks.response_schema_conformance,
    _checks.unsupported_method,
    _checks.allow_header_conformance,
    pytest.importorskip("schemathesis.checks").not_a_server_error,
]
_LIMITS = GatewayLimits(requests_per_minute=1e9, burst=10**9, silence_s=2, n_tensors=1000)


def _app() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="clma-schema-"))
    return create_app(signed_fleet(f"memory://{folder}", folder), limits=_LIMITS)


_APP = _app()
_DESCRIBED = schemathesis.openapi.from_dict(_APP.openapi())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with on_loopback(_APP) as address:
        yield address


def sign(request: Any) -> Any:
    """Sign what is about to be sent, as plant p0."""
    body = request.body or b""
    body = body if isinstance(body, bytes) else str(body).encode()
    parts = urlsplit(request.url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    sha256 = hashlib.sha256(body).hexdigest()
    now = dt.datetime.now(dt.UTC)
    request.headers["Authorization"] = authorize(
        key_of("p0"), request.method, target, now=now, sha256=sha256
    )
    return request


@_DESCRIBED.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_pages_keep_to_their_description(case: Any, url: str) -> None:
    names = case.path_parameters or {}
    ours = {"federation": "fleet", "client_id": "p0", "round_num": 1}
    names.update({name: value for name, value in ours.items() if name in names})
    answer = case.call(base_url=url, auth=sign)
    case.validate_response(answer, checks=_ANSWERS)


@_DESCRIBED.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_pages_of_plants_are_closed_to_strangers(case: Any, url: str) -> None:
    answer = case.call(base_url=url)
    wanted = {200, 405} if case.path == "/health" else {401, 404, 405, 422}
    assert answer.status_code in wanted
