"""A signature: a few arrays that describe a client's data of one round.

Each kind has its own file, with how a client makes one and how two of them compare. A signature
leaves the client only where ``privacy.share`` names `signature`.

Examples
--------
>>> Signature("fecfl", {"mean": np.zeros(64)}, "cnn1d").size_bytes
512
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidUpdateError, ShapeMismatchError

__all__ = ["FeatureExtractor", "Signature", "SignatureSource", "arrays_of", "check_comparable"]

FeatureExtractor = Callable[[NDArray[np.floating]], NDArray[np.floating]]
"""Maps samples of shape (n, ...) to features of shape (n, n_features), row by row."""


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What one client told of its data.

    Parameters
    ----------
    kind : str
        Which file of this folder made it.
    arrays : mapping of name to ndarray
        At least one dimension each, finite.
    encoder : str
        What turned samples into features; signatures of different encoders do not compare.

    Raises
    ------
    InvalidUpdateError
        If a value is NaN or infinite.
    """

    kind: str
    arrays: Mapping[str, NDArray[np.floating]]
    encoder: str = ""

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            if not np.isfinite(array).all():
                raise InvalidUpdateError(
                    f"signature {self.kind!r}: {name!r} has values that are NaN or infinite"
                )

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays, as they would be sent."""
        return sum(array.nbytes for array in self.arrays.values())


SignatureSource = Callable[[str, int], Signature]
"""The signature of a client's data of a round, from client id and round."""


def arrays_of(
    signatures: Iterable[tuple[str, Signature]], kind: str, name: str
) -> tuple[NDArray[np.float64], ...]:
    """Return one array of every signature, if they can be compared.

    Parameters
    ----------
    signatures : iterable of (client id, Signature)
        A client may come more than once.
    kind : str
        That all must have.
    name : str
        Of the array; its first axis counts the features.

    Returns
    -------
    tuple of ndarray
        In the order given, float64, equally long along the first axis.

    Raises
    ------
    InvalidUpdateError
        If a signature is of another kind or encoder than the others.
    ShapeMismatchError
        If it has another number of features.
    """
    signed = list(signatures)
    check_comparable(signed, kind)
    for client_id, signature in signed:
        if name not in signature.arrays:
            raise InvalidUpdateError(f"client {client_id!r}: signature lacks {name!r}")
        n_features, wanted = len(signature.arrays[name]), len(signed[0][1].arrays[name])
        if n_features != wanted:
            raise ShapeMismatchError(
                f"client {client_id!r}: signature has {n_features} features, others {wanted}"
            )
    return tuple(s.arrays[name].astype(np.float64) for _, s in signed)


def check_comparable(signatures: Iterable[tuple[str, Signature]], kind: str) -> None:
    """Refuse signatures that cannot be compared with each other.

    Parameters
    ----------
    signatures : iterable of (client id, Signature)
    kind : str
        That all must have.

    Raises
    ------
    InvalidUpdateError
        If a signature is of another kind or encoder than the others; names the client.
    """
    encoder: str | None = None
    for client_id, signature in signatures:
        if signature.kind != kind:
            raise InvalidUpdateError(
                f"client {client_id!r}: signature is of kind {signature.kind!r}, wanted {kind!r}"
            )
        encoder = signature.encoder if encoder is None else encoder
        if signature.encoder != encoder:
            raise InvalidUpdateError(
                f"client {client_id!r}: signature was made with encoder {signature.encoder!r}, "
                f"others with {encoder!r}"
            )
