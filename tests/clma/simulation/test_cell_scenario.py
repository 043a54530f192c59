from __future__ import annotations

import os
from pathlib import Path

import pytest

from clma.errors import InvalidConfigError
from clma.simulation.cell_scenario import check_scenario, data_digest, load_cell_fleet

OWN = "tests.clma.simulation.small_scenario"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for folder in ("pronto", "gas_drift"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "table.parquet").write_bytes(folder.encode())
    return tmp_path


def test_an_unknown_scenario_names_those_that_are_known() -> None:
    with pytest.raises(InvalidConfigError, match=r"'moon/stagger' is unknown.* plant/stagger"):
        check_scenario("moon/stagger")
    with pytest.raises(InvalidConfigError, match=r"'gas/x' is unknown, wanted one of gas/stagger"):
        check_scenario("gas/x")
    with pytest.raises(InvalidConfigError, match="small_scenario:gone"):
        check_scenario(f"{OWN}:gone")


def test_a_factory_of_the_users_own_makes_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLMA_TEST_DESK", str(tmp_path))
    fleet = load_cell_fleet(f"{OWN}:three_plants", 3, None)
    assert (len(fleet.client_ids), fleet.seed) == (3, 3)


def test_a_factory_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="makes a str, wanted a clma Fleet"):
        load_cell_fleet(f"{OWN}:nothing", 0, None)


def test_a_scenario_follows_from_its_own_data_only(data_dir: Path) -> None:
    before = {name: data_digest(name, data_dir) for name in ("pronto/mixed", "gas/same")}

    (data_dir / "gas_drift" / "table.parquet").write_bytes(b"other")

    assert data_digest("pronto/mixed", data_dir) == before["pronto/mixed"]
    assert data_digest("gas/same", data_dir) != before["gas/same"]


def test_a_copy_of_the_data_is_the_same_data(data_dir: Path) -> None:
    before = data_digest("pronto/mixed", data_dir)
    os.utime(data_dir / "pronto" / "table.parquet", (0, 0))
    assert data_digest("pronto/mixed", data_dir) == before


def test_generated_data_have_no_digest(data_dir: Path) -> None:
    assert data_digest("plant/stagger", data_dir) == data_digest("plant/stagger", None) == ""


def test_a_scenario_of_the_users_own_follows_from_its_code_and_all_data(data_dir: Path) -> None:
    without, before = data_digest(f"{OWN}:nothing", None), data_digest(f"{OWN}:nothing", data_dir)
    assert without
    (data_dir / "more.csv").write_text("1,2")
    assert len({without, before, data_digest(f"{OWN}:nothing", data_dir)}) == 3
