"""Find a model factory by its name, ``package.module:factory``.

Examples
--------
>>> load_factory("collections:Counter")("aab")["a"]
2
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from clma.errors import InvalidConfigError

__all__ = ["load_factory"]


def load_factory(path: str) -> Callable[..., Any]:
    """Import the callable that `path` names.

    Parameters
    ----------
    path : str
        ``package.module:factory``. It is imported, so it must come from the operator and never
        from a client.

    Raises
    ------
    InvalidConfigError
        If `path` has another form, or the module or the callable in it does not exist.
    """
    module_name, _, name = path.partition(":")
    if not module_name or module_name.startswith(".") or not name:
        raise InvalidConfigError(f"model factory {path!r}: wanted package.module:factory")
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfigError(f"model factory {path!r}: {error}") from error
    if not callable(factory):
        raise InvalidConfigError(
            f"model factory {path!r} is a {type(factory).__name__}, not callable"
        )
    result: Callable[..., Any] = factory
    return result
