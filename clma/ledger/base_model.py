"""Check the model that a federation starts from: every later one has its names and shapes."""

from __future__ import annotations

from pathlib import Path

from clma.errors import InvalidConfigError
from clma.parameters.tensor_file import (
    FLOAT_DTYPES,
    MAX_MAGNITUDE,
    TensorFile,
    TensorFileError,
    count_unusable,
)

__all__ = ["read_base_model"]


def read_base_model(path: Path) -> bytes:
    """Return the bytes of a base model.

    Parameters
    ----------
    path : Path
        A safetensors file.

    Raises
    ------
    InvalidConfigError
        If it is missing, no safetensors file, without a float tensor, or not finite.
    """
    try:
        with TensorFile(path) as file:
            names = [s.name for s in file.specs if s.dtype in FLOAT_DTYPES]
            broken = [n for n in names if count_unusable(file.read(n))]
        data = path.read_bytes()
    except (TensorFileError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidConfigError(f"base model {path}: {reason}") from None
    if not names:
        raise InvalidConfigError(
            f"base model {path} has no tensor of a float type, wanted one or more"
        )
    if broken:
        raise InvalidConfigError(
            f"base model {path}: tensor {broken[0]!r} has values that are NaN, "
            f"infinite or beyond {MAX_MAGNITUDE:g}"
        )
    return data
