from __future__ import annotations

import dataclasses
import shlex

import pytest

from clma.config import PRESETS
from clma.errors import InvalidConfigError
from tasks.comparison_request import ComparisonRequest, parse_names, parse_seeds

REQUEST = ComparisonRequest(("plant/stagger", "plant/gradual"), ("clma", "fedavg"), (3, 4), "out")


def test_every_combination_is_one_cell() -> None:
    shown = [cell.shown for cell in REQUEST.cells]
    assert len(set(shown)) == len(shown) == 8
    assert shown[0] == "plant/stagger clma seed 3"


def test_all_methods_have_a_seed_before_any_has_the_next() -> None:
    assert [cell.seed for cell in REQUEST.cells] == [3] * 4 + [4] * 4


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("100:103", (100, 101, 102)),
        ("7", (7,)),
        ("0,3 7", (0, 3, 7)),
        ("0:2,1:4", (0, 1, 2, 3)),
    ],
)
def test_seeds_are_ranges_without_their_end_or_lists(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "5:5", "5:3", "a", "1:b", "1.5"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="wanted FIRST:END"):
        parse_seeds(text)


def test_a_name_that_is_given_twice_counts_once() -> None:
    assert parse_names("clma,fedavg, clma") == ("clma", "fedavg")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scenarios": ("moon/stagger",)}, "scenario 'moon/stagger' is unknown, wanted"),
        ({"methods": ("clma", "best")}, "preset 'best' is unknown, wanted one of"),
        ({"methods": ()}, "wanted at least one of each"),
        ({"seeds": (-1,)}, "seeds >= 0"),
        ({"data_dir": "/nowhere"}, "no folder /nowhere"),
        ({"settings": ("drift.gamma=-1",)}, "drift.gamma"),
        ({"settings": ("nothing",)}, "section.key=value"),
    ],
)
def test_whatever_is_unknown_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        dataclasses.replace(REQUEST, **change).check()


def test_every_preset_is_a_method_and_so_is_the_truth() -> None:
    dataclasses.replace(REQUEST, methods=(*PRESETS, "oracle")).check()


def test_the_command_asks_for_the_same_again() -> None:
    request = dataclasses.replace(
        REQUEST, n_rounds=4, settings=("drift.gamma=0.2",), data_dir="my data"
    )
    words = shlex.split(request.command)
    options = dict(zip(words[3::2], words[4::2], strict=True))

    assert parse_names(options["--scenarios"]) == request.scenarios
    assert parse_names(options["--methods"]) == request.methods
    assert parse_seeds(options["--seeds"]) == request.seeds
    assert (options["--rounds"], options["--set"]) == ("4", "drift.gamma=0.2")
    assert (options["--data-dir"], options["--out"]) == ("my data", "out")
