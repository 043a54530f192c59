from __future__ import annotations

import pytest

pytest.importorskip("flwr")

from clma.adapters.flower.metrics import Measured, weighted_means


def test_means_are_weighted_by_examples() -> None:
    assert weighted_means([Measured(1, {"a": 0.0}), Measured(3, {"a": 1.0})]) == {"a": 0.75}


def test_lists_are_averaged_element_by_element() -> None:
    measured = [Measured(1, {"a": [0.0, 2.0]}), Measured(1, {"a": [1.0, 4.0]})]

    assert weighted_means(measured) == {"a": [0.5, 3.0]}


def test_without_examples_all_count_alike() -> None:
    assert weighted_means([Measured(0, {"a": 0.0}), Measured(0, {"a": 1.0})]) == {"a": 0.5}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 10**400, "0.9", [0.9], None])
def test_a_value_that_cannot_be_averaged_counts_nowhere(bad: object) -> None:
    measured = [Measured(1, {"a": 0.5}), Measured(1, {"a": 0.7}), Measured(1, {"a": bad})]

    assert weighted_means(measured) == pytest.approx({"a": 0.6})


def test_what_one_node_of_three_invents_is_left_out() -> None:
    measured = [Measured(1, {"a": 1.0, "b": 9.0}), Measured(1, {"a": 1.0}), Measured(1, {"a": 1.0})]

    assert weighted_means(measured) == {"a": 1.0}


def test_a_flood_of_names_is_cut() -> None:
    flood = {f"m{i}": 1.0 for i in range(5000)}

    assert len(weighted_means([Measured(1, flood)])) == 1000
