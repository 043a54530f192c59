from __future__ import annotations

import collections

import pytest

from clma.adapters.factory import load_factory
from clma.errors import InvalidConfigError


def test_named_callable_is_imported() -> None:
    assert load_factory("collections:Counter") is collections.Counter


@pytest.mark.parametrize(
    "path",
    [
        "",
        "collections",
        ":Counter",
        "collections:",
        "no_such_module:f",
        "collections:no_such",
        ".:f",
    ],
)
def test_name_that_leads_nowhere_is_refused_and_named(path: str) -> None:
    with pytest.raises(InvalidConfigError, match="model factory"):
        load_factory(path)


def test_value_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="is a int, not callable"):
        load_factory("sys:maxsize")
