from __future__ import annotations

import pytest

from clma.errors import InvalidConfigError
from tasks.quarantine_clients import VARIABLE, chosen_number


@pytest.mark.parametrize(("text", "number"), [("", None), ("1", 1), ("16", 16)])
def test_the_environment_may_name_the_number_of_shards(
    monkeypatch: pytest.MonkeyPatch, text: str, number: int | None
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert chosen_number() == number


@pytest.mark.parametrize("text", ["0", "17", "two", "-1", "1.5"])
def test_a_number_of_shards_that_is_none_is_one_line(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(
        InvalidConfigError, match=f"CLMA_SHARDS is '{text}', wanted a number from 1"
    ):
        chosen_number()
