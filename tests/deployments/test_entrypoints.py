from __future__ import annotations

from pathlib import Path

import pytest
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "entrypoint",
    [
        "flows/nightly.py:nightly",
        "flows/extra_round.py:extra_round",
        "flows/round.py:federated_round",
        "flows/publish.py:publish",
    ],
)
def test_an_entrypoint_loads_the_flow_itself(
    entrypoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    # A placeholder would hide an import error until the first night.
    flow = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)

    assert isinstance(flow, Flow)
    assert {"store", "federation"} <= set(flow.parameters.properties)
