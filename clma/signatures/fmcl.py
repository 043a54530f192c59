"""FMCL's signature: of every class the mean embedding and its share of a client's data.

A frozen encoder, the same for all clients, maps samples to embeddings; nothing is fitted to a
client. What leaves the client is one vector and one number a class, once.

References
----------
.. [1] FMCL, "one-shot, class-aware client clustering with foundation models", the signature.

Notes
-----
The paper was not available: what is here follows its published description. Embeddings are averaged
as they come; the distance looks at directions only. Against singling out, a client can leave out
classes of few samples, whose mean is nearly one sample, and add noise: every embedding is shortened
to a length and the mean of n of them gets Gaussian noise of a standard deviation of
`noise_multiplier` times that length over n. The shares get none, and so they are no secret.

Examples
--------
>>> from clma.encoders.flatten import Flatten
>>> samples = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 4.0]])
>>> signature = sign_by_class_means(samples, np.array([0, 0, 7, 7]), Flatten((2,)))
>>> signature.arrays["classes"].tolist(), signature.arrays["means"].tolist()
([0, 7], [[2.0, 0.0], [0.0, 3.0]])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import Encoder
from clma.errors import InvalidUpdateError, ShapeMismatchError
from clma.signatures.signature import Signature

__all__ = ["KIND", "ClassMeans", "SignatureNoise", "class_means", "sign_by_class_means"]

KIND = "fmcl"
N_AT_ONCE = 256
SHARE_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class SignatureNoise:
    """How a client blurs the means that it sends.

    Parameters
    ----------
    clip_norm : float > 0
        Longest embedding; longer ones are shortened to it.
    noise_multiplier : float >= 0
        Standard deviation of the noise of a sum of embeddings, in units of `clip_norm`.
    rng : Generator
        The client's own; whoever knows its seed can take the noise away.
    """

    clip_norm: float
    noise_multiplier: float
    rng: np.random.Generator

    def __post_init__(self) -> None:
        if not (self.clip_norm > 0 and self.noise_multiplier >= 0):
            raise InvalidUpdateError(
                f"clip_norm {self.clip_norm}, noise_multiplier {self.noise_multiplier}; "
                "wanted above 0 and at least 0"
            )


@dataclass(frozen=True, slots=True)
class ClassMeans:
    """What a signature says.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Rising class indices.
    means : ndarray of shape (n_classes, n_features)
        None of them zero.
    shares : ndarray of shape (n_classes,)
        In (0, 1], 1 together.
    """

    classes: NDArray[np.int64]
    means: NDArray[np.floating]
    shares: NDArray[np.float64]


def sign_by_class_means(
    samples: NDArray[np.floating],
    labels: NDArray[np.integer],
    encoder: Encoder,
    *,
    min_examples: int = 1,
    noise: SignatureNoise | None = None,
) -> Signature:
    """Describe a client's data by the mean embedding and the share of every class.

    Parameters
    ----------
    samples : ndarray of shape (n, ...)
        Not modified.
    labels : ndarray of shape (n,)
        Class indices, at least 0.
    encoder : Encoder
        Sees a few hundred samples at a time; its fingerprint goes with the signature.
    min_examples : int >= 1
        Classes with fewer samples are left out, and their samples count for no share.
    noise : SignatureNoise, optional

    Returns
    -------
    Signature
        Arrays ``classes`` (int64), ``means`` (float32) and ``shares`` (float64), by rising class.

    Raises
    ------
    ShapeMismatchError
        If there is no sample, not one label a sample, or not one embedding a sample.
    InvalidUpdateError
        If an embedding is NaN or infinite, a class mean is zero, or no class has enough samples;
        names the class.
    """
    labels = np.asarray(labels)
    if len(samples) != len(labels) or labels.ndim != 1 or len(labels) == 0:
        raise ShapeMismatchError(
            f"{len(samples)} samples, labels of shape {labels.shape}; wanted as many, not 0"
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise InvalidUpdateError("labels must be integers of at least 0")
    classes, rows, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = _sums_by_class(samples, labels, rows, len(classes), encoder, noise)
    kept = counts >= min_examples
    if not kept.any():
        raise InvalidUpdateError(
            f"the largest class has {counts.max()} samples, wanted at least {min_examples}"
        )
    means = (sums[kept] / counts[kept, None]).astype(np.float32)
    _check_means(classes[kept], means)
    arrays = {
        "classes": classes[kept].astype(np.int64),
        "means": means,
        "shares": counts[kept] / counts[kept].sum(),
    }
    return Signature(KIND, arrays, encoder.fingerprint)


def class_means(signature: Signature) -> ClassMeans:
    """Read a signature that may come from outside.

    Raises
    ------
    InvalidUpdateError
        If it is of another kind, lacks an array, or its values cannot be class means and shares;
        says what is wrong.
    """
    if signature.kind != KIND:
        raise InvalidUpdateError(f"signature is of kind {signature.kind!r}, wanted {KIND!r}")
    missing = {"classes", "means", "shares"} - signature.arrays.keys()
    if missing:
        raise InvalidUpdateError(f"signature lacks {', '.join(sorted(missing))}")
    classes, means, shares = (signature.arrays[n] for n in ("classes", "means", "shares"))
    shapes = (classes.shape, means.shape, shares.shape)
    if (
        means.ndim != 2
        or 0 in means.shape
        or not (classes.shape == shares.shape == means.shape[:1])
    ):
        raise InvalidUpdateError(f"signature's classes, means, shares have shapes {shapes}")
    whole = np.asarray(classes, np.int64)
    if (whole != classes).any() or whole[0] < 0 or (np.diff(whole) <= 0).any():
        raise InvalidUpdateError("signature's classes are not rising indices of at least 0")
    if (shares <= 0).any() or abs(float(shares.sum()) - 1) > SHARE_ROUNDING:
        raise InvalidUpdateError(
            f"signature's shares run from {shares.min():.3g} and add up to {shares.sum():.6g}, "
            "wanted above 0 and 1"
        )
    _check_means(whole, means)
    return ClassMeans(whole, means, np.asarray(shares, np.float64))


def _sums_by_class(
    samples: NDArray[np.floating],
    labels: NDArray[np.integer],
    rows: NDArray[np.intp],
    n_classes: int,
    encoder: Encoder,
    noise: SignatureNoise | None,
) -> NDArray[np.float64]:
    sums = np.zeros((n_classes, 0))
    for start in range(0, len(samples), N_AT_ONCE):
        piece = slice(start, start + N_AT_ONCE)
        embeddings = _embeddings(samples[piece], labels[piece], encoder)
        if noise is not None:
            embeddings = _shortened(embeddings, noise.clip_norm)
        if start == 0:
            sums = np.zeros((n_classes, embeddings.shape[1]))
        np.add.at(sums, rows[piece], embeddings)
    if noise is not None:
        spread = noise.noise_multiplier * noise.clip_norm
        sums += noise.rng.normal(0.0, spread, sums.shape)
    return sums


def _embeddings(
    samples: NDArray[np.floating], labels: NDArray[np.integer], encoder: Encoder
) -> NDArray[np.float64]:
    embeddings = np.asarray(encoder(samples), np.float64)
    if embeddings.ndim != 2 or len(embeddings) != len(samples):
        raise ShapeMismatchError(
            f"embeddings of {len(samples)} samples have shape {embeddings.shape}, "
            f"wanted ({len(samples)}, n_features)"
        )
    broken = ~np.isfinite(embeddings).all(axis=1)
    if broken.any():
        raise InvalidUpdateError(
            f"class {labels[broken][0]}: {int(broken.sum())} embeddings have values that are "
            "NaN or infinite"
        )
    return embeddings


def _shortened(embeddings: NDArray[np.float64], clip_norm: float) -> NDArray[np.float64]:
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return np.asarray(embeddings * np.minimum(1.0, clip_norm / np.maximum(lengths, clip_norm)))


def _check_means(classes: NDArray[np.int64], means: NDArray[np.floating]) -> None:
    zero = ~means.any(axis=1)
    if zero.any():
        raise InvalidUpdateError(
            f"class {classes[zero][0]}: the mean embedding is zero and points nowhere"
        )
