from __future__ import annotations

from pathlib import Path

import pytest

from clma.errors import InvalidConfigError
from clma.simulation import load_fleet, recipe_names


@pytest.mark.parametrize("recipe", [name for name in recipe_names() if name.startswith("plant")])
def test_every_plant_recipe_makes_a_fleet(recipe: str) -> None:
    fleet = load_fleet(None, recipe, 0, n_clients=5)

    windows, labels = fleet.training_windows("plant-05", 9)

    assert fleet.name == recipe
    assert len(windows) == len(labels) == fleet.n_windows


def test_slash_may_stand_for_the_first_dash() -> None:
    assert load_fleet(None, "plant/repeat", 0).name == "plant-repeat"


@pytest.mark.parametrize("recipe", ["", "plants", "plant-", "plant-mixed-repeat", "digits"])
def test_unknown_recipe_is_named_in_one_line(recipe: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"recipe '{recipe}' is unknown") as caught:
        load_fleet(None, recipe, 0)

    assert "\n" not in str(caught.value)


def test_recorded_recipe_without_data_says_so() -> None:
    with pytest.raises(InvalidConfigError, match="'pronto' replays a table"):
        load_fleet(None, "pronto", 0)


def test_generated_recipe_with_data_says_so() -> None:
    with pytest.raises(InvalidConfigError, match="generates its data, got the file"):
        load_fleet(Path("x.parquet"), "plant", 0)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"no file .*pronto_process_1hz.parquet"):
        load_fleet(tmp_path, "pronto", 0)


@pytest.mark.parametrize(("seed", "n_clients"), [(-1, 10), (0, 0)])
def test_numbers_out_of_range_are_refused(seed: int, n_clients: int) -> None:
    with pytest.raises(InvalidConfigError, match="wanted seed >= 0"):
        load_fleet(None, "plant", seed, n_clients=n_clients)
