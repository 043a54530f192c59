"""A federation that forms cohorts from signatures, and what its plants send."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.client.sign import SignatureReceipt, send_signature
from clma.ledger.federation import Federation
from clma.ledger.keys import signature_key
from clma.onboarding.carry_out import open_first_round, write_plan
from clma.onboarding.plan import plan_cohorts
from clma.records import ArtifactRef
from clma.signatures.message import SignatureMessage, message_bytes
from clma.signatures.signature import Signature
from tests.clma.ledger.fleet import NOW, make_fleet

ENCODER = "e1" * 32
SHARE = {"share": ["weights", "flag", "examples", "signature"]}


def signature(
    family: str = "north", seed: int = 0, encoder: str = ENCODER, n_features: int = 4
) -> Signature:
    """Return a signature of a client of one of two families with classes of their own."""
    rng = np.random.default_rng([seed, family == "north"])
    first = 0 if family == "north" else 2
    means = np.zeros((2, n_features))
    means[[0, 1], [first % n_features, (first + 1) % n_features]] = 1.0
    arrays: dict[str, NDArray[Any]] = {
        "classes": np.array([first, first + 1]),
        "means": (means + rng.normal(0, 0.01, means.shape)).astype(np.float32),
        "shares": np.array([0.5, 0.5]),
    }
    return Signature("fmcl", arrays, encoder)


def found(url: str | Path, tmp_path: Path, n_clients: int = 6, **settings: Any) -> Federation:
    """Create federation `fleet`, which waits for signatures."""
    values = {"onboarding": {"method": "fmcl"}, "privacy": SHARE, **settings}
    return make_fleet(url, tmp_path, n_clients, opened=False, **values)


def send(federation: Federation, client_id: str, sent: Signature, **more: Any) -> SignatureReceipt:
    return send_signature(federation, "fleet", client_id, sent, **more)


def send_all(federation: Federation, n_north: int = 4, *, leave_out: tuple[str, ...] = ()) -> None:
    """Let every client send: the first ones are of one family, the others of another."""
    for number, client_id in enumerate(federation.state().clients):
        if client_id not in leave_out:
            family = "north" if number < n_north else "south"
            send(federation, client_id, signature(family, number))


def drop_signature(
    fleet: Federation,
    folder: str,
    data: bytes,
    message: bytes | None = None,
    **said: Any,
) -> None:
    """Drop a signature as a foreign program would, without any check."""
    values: dict[str, Any] = {
        "federation": "fleet",
        "client_id": folder,
        "kind": "fmcl",
        "encoder": ENCODER,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
        "created_at": "2026-01-05T21:00:00+00:00",
        **said,
    }
    text = message_bytes(SignatureMessage(**values)) if message is None else message
    digest = values["tensors_sha256"]
    fleet.store.put_if_absent(signature_key(folder, digest, "safetensors"), data)
    name = hashlib.sha256(text).hexdigest()
    fleet.store.put_if_absent(signature_key(folder, name, "json"), text)


def onboard(federation: Federation, now: dt.datetime = NOW) -> ArtifactRef:
    """Form cohorts and open round 1 with them."""
    ref = write_plan(federation, plan_cohorts(federation, keep=True))
    open_first_round(federation, ref, now=now)
    return ref


def cohorts_of(federation: Federation) -> dict[str, str]:
    return {c: client.cohort_id for c, client in federation.state().clients.items()}
