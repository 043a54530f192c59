from __future__ import annotations

import datetime as dt

import pytest

from clma.errors import UnauthorizedError
from clma.records import ClientKey
from clma.updates.request_signing import authorize, parse_authorization, signer_of_request
from clma.updates.signing import SigningKey

KEY = SigningKey.from_seed(bytes(32))
NOW = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
ASKED = ("GET", "/v1/federations/f/clients/p/offer")


def test_signer_is_found_also_among_revoked_keys() -> None:
    proof = parse_authorization(authorize(KEY, *ASKED, now=NOW))
    keys = (ClientKey(SigningKey.from_seed(bytes([1] * 32)).public), ClientKey(KEY.public, 0, 3))
    assert signer_of_request(proof, *ASKED, keys) is keys[1]


@pytest.mark.parametrize("other", [("PUT", ASKED[1]), ("GET", ASKED[1] + "?drifted=true")])
def test_signature_is_for_one_method_and_address(other: tuple[str, str]) -> None:
    proof = parse_authorization(authorize(KEY, *ASKED, now=NOW))
    assert signer_of_request(proof, *other, [ClientKey(KEY.public)]) is None


@pytest.mark.parametrize("part", ["time=", "nonce=", "sha256="])
def test_no_part_of_a_proof_can_be_changed(part: str) -> None:
    header = authorize(KEY, *ASKED, now=NOW)
    at = header.index(part) + len(part)
    changed = header[:at] + ("1" if header[at] != "1" else "2") + header[at + 1 :]
    proof = parse_authorization(changed)
    assert signer_of_request(proof, *ASKED, [ClientKey(KEY.public)]) is None


def test_no_two_requests_have_the_same_proof() -> None:
    assert authorize(KEY, *ASKED, now=NOW) != authorize(KEY, *ASKED, now=NOW)


@pytest.mark.parametrize("header", [None, "", "Bearer x", "CLMA-Ed25519 time=1", "x" * 10_000])
def test_another_header_is_refused_in_one_line(header: str | None) -> None:
    with pytest.raises(UnauthorizedError, match="wanted") as caught:
        parse_authorization(header)
    assert "\n" not in str(caught.value)
