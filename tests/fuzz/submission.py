"""What a client drops: an honest update, to be spoiled by one mutation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clma.parameters.tensor_file import serialize_tensors
from clma.records import TensorSpec

FEDERATION = "fuzzed"
SPECS = (
    TensorSpec("block.0.weight", "F32", (6, 4)),
    TensorSpec("block.0.bias", "F16", (6,)),
    TensorSpec("block.1.weight", "BF16", (3, 6)),
    TensorSpec("block.1.scale", "F64", (3,)),
    TensorSpec("block.1.steps", "I64", ()),
    TensorSpec("head.weight", "F32", (2, 3)),
    TensorSpec("head.mask", "BOOL", (2, 3)),
    TensorSpec("head.empty", "F32", (0, 3)),
)
"""Every width, bfloat16, a scalar, a mask and a tensor without values."""


def tensors_of(rng: np.random.Generator) -> bytes:
    """Return a well-formed file of tensors, all finite."""
    values = {s.name: rng.normal(size=s.shape).astype(np.float32) for s in SPECS}
    values["block.1.steps"] = np.array(rng.integers(1, 1000))
    values["head.mask"] = rng.random((2, 3)) < 0.5
    return serialize_tensors(values, SPECS)


@dataclass(frozen=True, slots=True)
class Submission:
    """A client's folder of one round, before it is written.

    Parameters
    ----------
    client_id : str
    tensors : bytes
        ``update.safetensors``.
    fields : mapping
        ``update.json``.
    text : bytes, optional
        ``update.json`` as it is written, where that is not the canonical text of `fields`.
    place : callable, optional
        Writes into the inbox of a round what is not just two files in the client's folder.
    folder : str, optional
        Name of a folder that is not the client's.
    accepted : bool
        The mutation leaves the meaning as it is, and has to be taken.
    """

    client_id: str
    tensors: bytes
    fields: Mapping[str, Any]
    text: bytes | None = None
    place: Callable[[Submission, Path], None] | None = None
    folder: str | None = None
    accepted: bool = False

    def message(self) -> bytes:
        """Return ``update.json``."""
        return canonical(self.fields) if self.text is None else self.text

    def naming(self, tensors: bytes) -> Submission:
        """Return it with other tensors and a message that names their digest."""
        digest = hashlib.sha256(tensors).hexdigest()
        return replace(self, tensors=tensors, fields={**self.fields, "tensors_sha256": digest})

    def saying(self, **fields: Any) -> Submission:
        """Return it with other fields in the message."""
        return replace(self, fields={**self.fields, **fields})

    def write(self, inbox: Path) -> None:
        """Drop it into the inbox of a round."""
        if self.place is not None:
            self.place(self, inbox)
        else:
            write_files(inbox / (self.folder or self.client_id), self)


def write_files(folder: Path, submission: Submission) -> None:
    """Write the two files of a submission, as an honest client does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "update.safetensors").write_bytes(submission.tensors)
    (folder / "update.json").write_bytes(submission.message())


def canonical(fields: Mapping[str, Any]) -> bytes:
    """Return fields as an honest client writes them."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def honest(client_id: str, base_digest: str, rng: np.random.Generator) -> Submission:
    """Return an update that is all right."""
    fields = {
        "schema": 1,
        "federation": FEDERATION,
        "client_id": client_id,
        "round": 1,
        "base_digest": base_digest,
        "n_examples": int(rng.integers(1, 10_000)),
        "drift_flag": bool(rng.random() < 0.2),
        "created_at": "2026-01-05T21:00:00+00:00",
        "software": "a plant",
    }
    return Submission(client_id, b"", fields).naming(tensors_of(rng))
