"""Embeddings that were right once, stored beside an encoder's file to be checked at every load.

The runtime, the graph and the preprocessing may each change under a file that stays the same. The
embeddings should come from the model as it was published, so that an export that changed it is
refused too: comparing an export with another export of the same hands proves nothing.

Notes
-----
One file of the safetensors format: ``inputs``, ``embeddings``, and among the metadata the
fingerprint of the encoder that made them. Another encoder may well be checked by it: the export of
a network by the network.

Examples
--------
>>> import tempfile
>>> from clma.encoders.flatten import Flatten
>>> path = Path(tempfile.mkdtemp()) / "reference.safetensors"
>>> save_reference(Flatten((2,)), np.ones((3, 2)), path)
>>> check_reference(Flatten((2,)), path)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from clma.encoders.contract import Encoder, encode
from clma.errors import InvalidConfigError, ShapeMismatchError, StorageError

__all__ = ["TOLERANCE", "check_reference", "check_row_wise", "save_reference"]

TOLERANCE = 1e-3
"""Of an embedding's largest value. Runtimes differ by some 1e-5, preprocessings by far more."""


def save_reference(encoder: Encoder, samples: NDArray[Any], path: Path) -> None:
    """Store samples and their embeddings.

    Parameters
    ----------
    encoder : Encoder
        Made of the model as it was published.
    samples : ndarray of shape (n, ...)
        A few real ones, at least 1.
    path : Path
        Overwritten.

    Raises
    ------
    ShapeMismatchError
        If there is no sample.
    InvalidConfigError
        If an embedding depends on the samples beside its own.
    InvalidUpdateError
        If a sample or an embedding is NaN or infinite.
    StorageError
        If the file cannot be written.
    """
    samples = np.ascontiguousarray(samples)
    if samples.ndim == 0 or len(samples) == 0:
        raise ShapeMismatchError("a reference of 0 samples, wanted at least 1")
    check_row_wise(encoder, samples)
    tensors = {"inputs": samples, "embeddings": encode(encoder, samples)}
    try:
        path.write_bytes(save(tensors, metadata={"fingerprint": encoder.fingerprint}))
    except OSError as error:
        raise StorageError(f"reference {path}: {error.strerror}", error.errno) from error


def check_reference(encoder: Encoder, path: Path, *, tolerance: float = TOLERANCE) -> None:
    """Refuse an encoder that no longer gives the stored embeddings.

    Parameters
    ----------
    encoder : Encoder
        Sees one sample at a time.
    path : Path
        Of `save_reference`.
    tolerance : float >= 0
        Largest departure, as a share of the stored embedding's largest value.

    Raises
    ------
    InvalidConfigError
        If an embedding departs further or has another length, or the file is no reference.
    ShapeMismatchError, InvalidUpdateError
        If the encoder does not take the stored samples.
    """
    samples, wanted, made_by = _read(path)
    if wanted.shape != (len(samples), encoder.dim):
        raise InvalidConfigError(
            f"reference {path}: embeddings have shape {wanted.shape}, "
            f"the encoder gives {(len(samples), encoder.dim)}"
        )
    departures = _departures(encode(encoder, samples, n_at_once=1), wanted)
    worst = int(departures.argmax())
    if not departures[worst] <= tolerance:
        raise InvalidConfigError(
            f"reference {path}: the embedding of sample {worst} departs by "
            f"{departures[worst]:.2g} of its largest value, wanted at most {tolerance:g} "
            f"(encoder {encoder.fingerprint[:12]}, reference of {made_by[:12]})"
        )


def check_row_wise(
    encoder: Encoder, samples: NDArray[Any], *, tolerance: float = TOLERANCE
) -> None:
    """Refuse an encoder that sees more in a sample than the sample.

    Parameters
    ----------
    encoder : Encoder
        Sees the samples twice: together, and one at a time.
    samples : ndarray of shape (n, ...)
        At least 1; two show batch statistics, one shows dropout.
    tolerance : float >= 0
        Largest departure, as a share of the embedding's largest value.

    Raises
    ------
    InvalidConfigError
        If an embedding depends on the samples beside its own, or on chance.
    """
    together = encode(encoder, samples, n_at_once=len(samples))
    departures = _departures(encode(encoder, samples, n_at_once=1), together)
    worst = int(departures.argmax())
    if not departures[worst] <= tolerance:
        raise InvalidConfigError(
            f"the embedding of sample {worst} depends on the samples beside it or on chance: alone "
            f"it departs by {departures[worst]:.2g} of its largest value, wanted at most "
            f"{tolerance:g}; batch statistics or dropout are left in training mode"
        )


def _departures(got: NDArray[np.float32], wanted: NDArray[np.floating]) -> NDArray[np.float64]:
    exact = wanted.astype(np.float64)
    largest = np.maximum(np.abs(exact).max(axis=1), np.finfo(np.float32).tiny)
    return np.asarray(np.abs(got - exact).max(axis=1) / largest)


def _read(path: Path) -> tuple[NDArray[Any], NDArray[np.floating], str]:
    try:
        with safe_open(path, framework="numpy") as file:
            inputs, embeddings = (file.get_tensor(name) for name in ("inputs", "embeddings"))
            made_by = (file.metadata() or {}).get("fingerprint", "unknown")
    except (OSError, SafetensorError) as error:
        raise InvalidConfigError(f"reference {path}: {error}") from error
    if inputs.ndim == 0 or embeddings.ndim != 2 or embeddings.size == 0:
        raise InvalidConfigError(
            f"reference {path}: inputs {inputs.shape}, embeddings {embeddings.shape}; "
            "wanted (n, ...) and (n, dim)"
        )
    return inputs, embeddings, made_by
