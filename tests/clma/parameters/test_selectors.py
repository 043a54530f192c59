from __future__ import annotations

import pytest

from clma.config import CohortingConfig
from clma.errors import InvalidConfigError
from clma.parameters.selectors import (
    make_selector,
    select_all,
    select_by_name,
    select_default,
    select_last_layers,
)
from clma.records import TensorSpec

SPECS = [
    TensorSpec("0.weight", "F32", (4, 2)),
    TensorSpec("0.bias", "F32", (4,)),
    TensorSpec("1.running_mean", "F32", (4,)),
    TensorSpec("1.num_batches_tracked", "I64", ()),
    TensorSpec("10.weight", "F32", (3, 4)),
    TensorSpec("2.weight", "BF16", (4, 4)),
]


def test_all_keeps_float_buffers_and_drops_counters() -> None:
    assert "1.running_mean" in select_all(SPECS)
    assert "1.num_batches_tracked" not in select_all(SPECS)


def test_default_drops_normalisation_statistics() -> None:
    assert select_default(SPECS) == ("0.bias", "0.weight", "10.weight", "2.weight")


def test_name_filter_includes_and_excludes() -> None:
    assert select_by_name(SPECS, include=["0.*"], exclude=["*.bias"]) == ("0.weight",)


def test_last_layers_sort_numbers_by_value() -> None:
    assert select_last_layers(SPECS, n_layers=2) == ("10.weight", "2.weight")


def test_last_layers_follow_the_given_order() -> None:
    assert select_last_layers(SPECS, order=["10", "2", "0"]) == ("0.bias", "0.weight")


def test_layer_missing_in_the_order_is_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"lacks the layers \['10'\]"):
        select_last_layers(SPECS, order=["0", "2"])


def test_selector_that_keeps_nothing_is_refused() -> None:
    select = make_selector(CohortingConfig(selector="name_filter", include=("head.*",)))
    with pytest.raises(InvalidConfigError, match="keeps none of 6 tensors"):
        select(SPECS)
