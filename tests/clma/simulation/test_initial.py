from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from clma.simulation.initial import initialize  # noqa: E402


def _layer(name: str) -> nn.Linear:
    made = initialize(lambda: nn.ModuleDict({name: nn.Linear(300, 300)}), np.random.default_rng(0))
    return made[name]


def test_weights_have_the_variance_of_he() -> None:
    assert _layer("hidden").weight.var().item() == pytest.approx(2 / 300, rel=0.05)


def test_output_layer_is_drawn_small() -> None:
    assert _layer("output").weight.var().item() == pytest.approx(0.01 / 300, rel=0.05)


def test_biases_are_zero() -> None:
    assert not _layer("hidden").bias.any()
