"""Embed images with a frozen encoder, once, and keep the embeddings in a folder.

A network of 224 pixels a side takes .04 s of a core for an image, minutes for a data set, so what
was embedded is kept in pieces of a few hundred images. A piece is named by everything that it
follows from: encoder, style, the pixels themselves. It carries a digest, so that a file that was
cut short or is something else is found out and made anew. Of several processes that want the same
images one embeds them and the others wait for it.

Examples
--------
>>> from clma.encoders.flatten import Flatten
>>> grey = np.full((2, 4, 4), 255, np.uint8)
>>> embed_images(grey, "invert", Flatten((3, 4, 4)), size=4).max()
np.float32(0.0)
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import Encoder, encode
from clma.errors import ShapeMismatchError
from clma.ledger.durable_file import replace_files
from clma.ledger.lease import hold_lease
from clma.ledger.store import Store
from clma.simulation.images import look

__all__ = ["embed_images", "show_on_stderr"]

VERSION = 1
"""Rises whenever the same images, style and encoder give other embeddings."""

PIECE = 500
N_AT_ONCE = 2
"""Images that the network sees together: larger batches leave the processor's cache and are slower
on one core."""

WAIT_S = 3600.0
QUIET_S = 2.0
EVERY_S = 10.0
_DIGEST_BYTES = hashlib.sha256().digest_size

Say = Callable[[str], None]


def embed_images(
    pixels: NDArray[np.uint8],
    style: str,
    encoder: Encoder,
    *,
    size: int,
    cache: Path | None = None,
    say: Say | None = None,
) -> NDArray[np.float32]:
    """Return the embeddings of images in a style.

    Parameters
    ----------
    pixels : ndarray of shape (n, side, side) or (n, side, side, 3)
        Brightness, 0 to 255; grey images are given three equal channels.
    style : str
        As `clma.simulation.images.look` takes it; applied before images are resized.
    encoder : Encoder
        Of samples (n, 3, size, size) in [0, 1].
    size : int, >= 1
        Pixels of a side that the encoder wants.
    cache : Path or None
        Folder for the embeddings, made if it is not there; None: they are not kept.
    say : callable, optional
        Told in a line every few seconds how far it is, where it takes long.

    Returns
    -------
    ndarray of shape (n, encoder.dim)

    Raises
    ------
    ShapeMismatchError
        If the images are not square, or neither grey nor of three channels.
    """
    if pixels.ndim not in (3, 4) or pixels.shape[1] != pixels.shape[2]:
        raise ShapeMismatchError(
            f"images have shape {pixels.shape}, wanted (n, side, side) or (n, side, side, 3)"
        )
    progress = _Progress(len(pixels), style, say)
    embedded = np.empty((len(pixels), encoder.dim), np.float32)
    for start in range(0, len(pixels), PIECE):
        piece = pixels[start : start + PIECE]

        def make(piece: NDArray[np.uint8] = piece) -> NDArray[np.float32]:
            return _embed(piece, style, encoder, size, progress)

        key = _key(piece, style, encoder, size)
        place = None if cache is None else cache / f"embeddings-{key[:32]}.npy"
        embedded[start : start + PIECE] = _kept(place, key, (len(piece), encoder.dim), make)
        progress.skip_to(start + len(piece))
    return embedded


def show_on_stderr(line: str) -> None:
    """Print a line where results do not go."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _kept(
    place: Path | None,
    key: str,
    shape: tuple[int, int],
    make: Callable[[], NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Return what is kept in a file, or make it, whoever comes first."""
    if place is None:
        return make()
    found = _read(place, key, shape)
    if found is not None:
        return found
    place.parent.mkdir(parents=True, exist_ok=True)
    with hold_lease(Store.open(place.parent), place.stem, wait_s=WAIT_S):
        found = _read(place, key, shape)
        if found is None:
            found = make()
            replace_files({place: _with_digest(found, key)})
    return found


def _with_digest(embedded: NDArray[np.float32], key: str) -> bytes:
    # Behind the array, where whoever reads an .npy file does not look.
    body = io.BytesIO()
    np.lib.format.write_array(body, embedded, version=(1, 0))
    return body.getvalue() + hashlib.sha256(key.encode() + body.getvalue()).digest()


def _read(place: Path, key: str, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """Return the array of a file; None if there is none, or it is not what was written there."""
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        return None
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(key.encode() + body).digest() != digest:
        return None
    with contextlib.suppress(ValueError):
        found = np.lib.format.read_array(io.BytesIO(body))
        if found.shape == shape and found.dtype == np.float32:
            return np.asarray(found, np.float32)
    return None


def _key(piece: NDArray[np.uint8], style: str, encoder: Encoder, size: int) -> str:
    described = f"{VERSION} {encoder.fingerprint} {size} {style} {piece.shape}"
    return hashlib.sha256(described.encode() + np.ascontiguousarray(piece).tobytes()).hexdigest()


def _embed(
    piece: NDArray[np.uint8], style: str, encoder: Encoder, size: int, progress: _Progress
) -> NDArray[np.float32]:
    parts = []
    for few in _in_turn(piece):
        seen = look(few.astype(np.float32) / np.float32(255.0), style)
        parts.append(encode(encoder, _resized(seen, size)))
        progress.add(len(few))
    return np.concatenate(parts)


def _in_turn(piece: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(piece), N_AT_ONCE):
        yield piece[start : start + N_AT_ONCE]


def _resized(images: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return images channels first, three of them, of another size; values stay in [0, 1]."""
    three = np.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images
    first = np.ascontiguousarray(three.transpose(0, 3, 1, 2))
    if first.shape[2] == size:
        return first
    import torch

    resized = torch.nn.functional.interpolate(
        torch.from_numpy(first), size=(size, size), mode="bilinear", antialias=True
    )
    return np.asarray(np.clip(resized.numpy(), 0.0, 1.0), np.float32)


class _Progress:
    """Says how far it is, if it takes longer than anybody waits without a word."""

    def __init__(self, n_images: int, style: str, say: Say | None) -> None:
        self._n_images = n_images
        self._style = style
        self._say = say
        self._n_done = self._n_made = 0
        self._started = time.monotonic()
        self._next = self._started + QUIET_S

    def add(self, n: int) -> None:
        self._n_done += n
        self._n_made += n
        now = time.monotonic()
        if self._say is None or now < self._next:
            return
        self._next = now + EVERY_S
        left_s = (self._n_images - self._n_done) * (now - self._started) / self._n_made
        self._say(
            f"embedding images ({self._style}): {self._n_done} of {self._n_images}, "
            f"about {left_s:.0f} s left"
        )

    def skip_to(self, n_done: int) -> None:
        self._n_done = n_done
