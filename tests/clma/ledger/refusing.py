"""Calls of the operating system that are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn


def refuse_with(error: BaseException) -> Callable[..., NoReturn]:
    """Return a stand-in for any call, which raises."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise error

    return refused


def refuse(code: int) -> Callable[..., NoReturn]:
    """Return a stand-in for a call of the operating system that answers with an error number."""
    return refuse_with(OSError(code, os.strerror(code)))
