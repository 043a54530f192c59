"""A signature of a client's data as a safetensors file, and back.

Examples
--------
>>> import tempfile
>>> import numpy as np
>>> arrays = {"classes": np.array([0]), "means": np.ones((1, 2), np.float32),
...           "shares": np.ones(1)}
>>> data = signature_bytes(Signature("fmcl", arrays, "ab" * 32))
>>> path = Path(tempfile.mkdtemp()) / "signature.safetensors"
>>> _ = path.write_bytes(data)
>>> read_signature(path, "fmcl", "ab" * 32).arrays["means"].shape
(1, 2)
"""

from __future__ import annotations

from pathlib import Path

from clma.errors import InvalidUpdateError
from clma.ledger.keys import printable
from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.parameters.tensor_header import TensorFileError, TensorLimits
from clma.signatures.fmcl import KIND, class_means
from clma.signatures.signature import Signature
from clma.updates.reasons import Reason

__all__ = ["LIMITS", "MAX_CLASSES", "MAX_FEATURES", "read_signature", "signature_bytes"]

MAX_CLASSES = 10_000
MAX_FEATURES = 65_536
LIMITS = TensorLimits(
    file_bytes=256 * 2**20, header_bytes=4096, header_marks=256, n_tensors=8, n_dims=2
)
"""Three arrays; the largest sizes that are looked at."""

_DTYPES = {"classes": "I64", "means": "F32", "shares": "F64"}


def signature_bytes(signature: Signature) -> bytes:
    """Write a signature; equal signatures give equal bytes.

    Raises
    ------
    InvalidUpdateError
        If it is none that `read_signature` would take.
    """
    class_means(signature)
    _check_sizes(*signature.arrays["means"].shape)
    dtypes = {"classes": "int64", "means": "float32", "shares": "float64"}
    return serialize_tensors({n: signature.arrays[n].astype(d) for n, d in dtypes.items()})


def read_signature(path: Path, kind: str, encoder: str) -> Signature:
    """Read a signature that may come from outside; sizes are checked before anything is decoded.

    Parameters
    ----------
    path : Path
        Read, never mapped.
    kind, encoder : str
        As its message says.

    Raises
    ------
    InvalidUpdateError
        If it is no signature of class means; says what is wrong.
    """
    if kind != KIND:
        raise InvalidUpdateError(f"signature is of kind '{printable(kind)}', wanted '{KIND}'")
    try:
        with TensorFile(path, limits=LIMITS, mapped=False) as file:
            got = {spec.name: spec.dtype for spec in file.specs}
            if got != _DTYPES:
                raise InvalidUpdateError(
                    f"tensors {printable(_listed(got))}, wanted {_listed(_DTYPES)}",
                    Reason.NAMES_MISMATCH,
                )
            _check_sizes(*file.spec("means").shape)
            arrays = {name: file.read(name) for name in _DTYPES}
    except TensorFileError as error:
        raise InvalidUpdateError(printable(str(error), 300), Reason.BAD_FORMAT) from None
    signature = Signature(kind, arrays, encoder)
    class_means(signature)
    return signature


def _check_sizes(n_classes: int = 0, n_features: int = 0) -> None:
    if n_classes > MAX_CLASSES or n_features > MAX_FEATURES:
        raise InvalidUpdateError(
            f"means of {n_classes} classes and {n_features} features, "
            f"at most {MAX_CLASSES} and {MAX_FEATURES} are read",
            Reason.BAD_FORMAT,
        )


def _listed(dtypes: dict[str, str]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in sorted(dtypes.items())) or "none"
