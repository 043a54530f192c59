from __future__ import annotations

from types import SimpleNamespace

import pytest

from clma.errors import ConflictError, DamagedStoreError, StorageError
from tasks.night import IO_RETRIES
from tests.clma.ledger.refusing import refuse_with


def is_tried_again(error: Exception) -> bool:
    state = SimpleNamespace(result=refuse_with(error))
    return bool(IO_RETRIES["retry_condition_fn"](None, None, state))


@pytest.mark.parametrize("error", [StorageError("full"), OSError("away"), RuntimeError("bug")])
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert is_tried_again(error)


@pytest.mark.parametrize("error", [ConflictError("first"), DamagedStoreError("changed")])
def test_what_stays_wrong_is_not_tried_again(error: Exception) -> None:
    assert not is_tried_again(error)
