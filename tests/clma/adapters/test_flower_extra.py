from __future__ import annotations

import importlib
import sys

import pytest

from clma.errors import MissingExtraError


def test_without_flwr_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith(("flwr", "clma.adapters.flower"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)

    with pytest.raises(MissingExtraError, match=r"needs flwr: pip install 'clma\[flower\]'"):
        importlib.import_module("clma.adapters.flower")
