"""Compile a plain function with numba, where numba is installed, and never into a user's home.

numba keeps what it compiled beside the source or, where it cannot write there, in the home folder
of whoever runs it. Here it is beside the source or nowhere.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from clma.errors import MissingExtraError

__all__ = ["compile_function", "is_numba_installed"]


@cache
def is_numba_installed() -> bool:
    """Tell whether numba is there, without the half second that its import takes."""
    return find_spec("numba") is not None


def compile_function(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """Return a function as machine code for arguments like the examples; it runs without the GIL.

    Parameters
    ----------
    function : callable
        In the part of Python that numba knows; calls no other function of ours.
    *examples
        One for every argument. Where the example is a read-only array, any array will do.

    Raises
    ------
    MissingExtraError
        If numba is not installed, or does not go with this Python or NumPy.
    """
    try:
        import numba
    except ImportError as error:
        raise MissingExtraError(f"numba cannot be imported, install clma[fast]: {error}") from error
    types = tuple(numba.typeof(example) for example in examples)
    if _can_write_beside(function):
        try:
            compiled: Callable[..., Any] = numba.njit(types, nogil=True, cache=True)(function)
        except Exception:  # noqa: BLE001, S110 - a full disk, or whatever a damaged cache raises
            pass
        else:
            return compiled
    return cast("Callable[..., Any]", numba.njit(types, nogil=True)(function))


def _can_write_beside(function: Callable[..., Any]) -> bool:
    """Tell whether numba would keep the code beside the source, tried as numba tries it."""
    if sys.dont_write_bytecode:
        return False
    folder = Path(function.__code__.co_filename).parent / "__pycache__"
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
