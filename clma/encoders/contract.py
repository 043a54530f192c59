"""What an encoder is: a frozen function from samples to embeddings, with an identity.

It has no ``fit``: two clients that each fit their own get embeddings that do not compare. Whoever
compares embeddings compares fingerprints first.

Examples
--------
>>> from clma.encoders.flatten import Flatten
>>> encode(Flatten((2, 2)), np.ones((3, 2, 2))).shape
(3, 4)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError

__all__ = ["Encoder", "check_finite", "check_samples", "encode", "fingerprint_of"]

N_AT_ONCE = 256


class Encoder(Protocol):
    """A frozen map from samples to embeddings.

    Deterministic and row by row: an embedding does not depend on the samples beside it, up to the
    rounding of a network's runtime.
    """

    @property
    def dim(self) -> int:
        """Numbers in an embedding."""
        ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 over kind, version, preprocessing and weights, in hexadecimal."""
        ...

    def __call__(self, batch: NDArray[Any], /) -> NDArray[np.float32]:
        """Map samples of shape (n, ...) to embeddings of shape (n, dim)."""
        ...


def encode(
    encoder: Encoder, samples: NDArray[Any], *, n_at_once: int = N_AT_ONCE
) -> NDArray[np.float32]:
    """Encode samples in pieces, and check what comes out.

    Parameters
    ----------
    encoder : Encoder
    samples : ndarray of shape (n, ...)
        Real numbers; none is allowed. Not modified.
    n_at_once : int >= 1
        Samples that the encoder sees together; bounds the memory that it takes.

    Returns
    -------
    ndarray of shape (n, dim)

    Raises
    ------
    InvalidConfigError
        If `n_at_once` is below 1.
    InvalidUpdateError
        If a sample or its embedding is NaN or infinite; names the row.
    ShapeMismatchError
        If the encoder does not give one row of `dim` numbers a sample.
    """
    if n_at_once < 1:
        raise InvalidConfigError(f"n_at_once is {n_at_once}, wanted at least 1")
    samples = np.asarray(samples)
    if samples.ndim == 0:
        raise ShapeMismatchError("samples have no axis, wanted shape (n, ...)")
    embeddings = np.empty((len(samples), encoder.dim), np.float32)
    for start in range(0, len(samples), n_at_once):
        piece = samples[start : start + n_at_once]
        check_finite("sample", piece, start)
        rows = np.asarray(encoder(piece))
        if rows.shape != (len(piece), encoder.dim):
            raise ShapeMismatchError(
                f"embeddings of {len(piece)} samples have shape {rows.shape}, "
                f"wanted {(len(piece), encoder.dim)}"
            )
        embeddings[start : start + len(piece)] = rows
        check_finite("embedding", embeddings[start : start + len(piece)], start)
    return embeddings


def check_samples(samples: NDArray[Any], shape: Sequence[int | None]) -> None:
    """Raise unless samples have a shape and hold finite real numbers.

    Parameters
    ----------
    samples : ndarray
    shape : sequence of int or None
        Wanted of each sample; None stands for any length.

    Raises
    ------
    ShapeMismatchError
        If the shape is another.
    InvalidUpdateError
        If a value is no real number, NaN or infinite; names the row.
    """
    got = np.shape(samples)
    fits = len(got) == 1 + len(shape) and all(
        wanted in (None, length) for length, wanted in zip(got[1:], shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(["n", *("any" if length is None else str(length) for length in shape)])
        raise ShapeMismatchError(f"samples have shape {got}, wanted ({wanted})")
    check_finite("sample", samples)


def check_finite(what: str, rows: NDArray[Any], first: int = 0) -> None:
    """Raise InvalidUpdateError unless all rows hold finite real numbers; name the first that fails.

    Parameters
    ----------
    what : str
        What a row is.
    rows : ndarray of shape (n, ...)
    first : int
        Number of the first row.
    """
    if rows.dtype.kind not in "biuf":
        raise InvalidUpdateError(f"{what}s have dtype {rows.dtype}, wanted real numbers")
    finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1) if rows.size else np.ones(0, bool)
    if not finite.all():
        row = first + int(np.flatnonzero(~finite)[0])
        raise InvalidUpdateError(f"{what} {row} has values that are NaN or infinite")


def fingerprint_of(
    kind: str,
    version: int,
    settings: Mapping[str, Any],
    weights: Iterable[bytes | memoryview] = (),
) -> str:
    """Identify an encoder by all that its embeddings depend on.

    Parameters
    ----------
    kind : str
        Which file of this folder it is of.
    version : int
        Rises whenever the same settings give other embeddings.
    settings : mapping
        What JSON can hold: preprocessing, shapes, ranges.
    weights : iterable of bytes
        As they lie in memory or in a file.

    Returns
    -------
    str
        SHA-256, in hexadecimal.
    """
    described = {"kind": kind, "version": version, "settings": settings}
    text = json.dumps(described, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(text.encode())
    for part in weights:
        digest.update(part)
    return digest.hexdigest()
