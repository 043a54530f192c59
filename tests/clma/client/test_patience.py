from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from clma.client.patience import patiently
from clma.errors import StorageError


def failing(*errors: Exception) -> Callable[[], str]:
    """Return what raises these in turn, then succeeds."""
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_a_passing_refusal_is_waited_out_with_growing_pauses() -> None:
    pauses: list[float] = []
    attempt = failing(StorageError("away"), StorageError("away", errno.ETIMEDOUT))

    assert patiently(attempt, attempts=3, pause_s=4, sleep=pauses.append) == "done"

    assert 2 <= pauses[0] <= 6
    assert 4 <= pauses[1] <= 12


def test_the_last_refusal_is_raised() -> None:
    attempt = failing(StorageError("first"), StorageError("second"))

    with pytest.raises(StorageError, match="second"):
        patiently(attempt, attempts=2, sleep=lambda _: None)


@pytest.mark.parametrize("error", [StorageError("full", errno.ENOSPC), ValueError("wrong")])
def test_what_does_not_pass_is_not_waited_for(error: Exception) -> None:
    with pytest.raises(type(error)):
        patiently(failing(error), attempts=3, sleep=pytest.fail)
