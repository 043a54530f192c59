from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clma.errors import InvalidConfigError
from clma.simulation import load_fleet
from clma.simulation.image_folder import LAYOUTS
from clma.simulation.scenarios import SCHEDULES, is_embedded, load_scenario, scenario_names
from tests.clma.simulation.recorded import DATA_DIR

GENERATED = [name for name in scenario_names() if name.startswith(("plant/", "digits/"))]
APART = ("dirichlet-0.1", "dirichlet-0.5", "class-groups")
FILES = {
    "pronto": "pronto/pronto_process_1hz.parquet",
    "cranfield": "cranfield2015/cranfield2015_1hz.parquet",
    "gas": "gas_drift/gas_drift_8of10.parquet",
    "cifar10": "cifar10/test.parquet",
    "busi": "busi_224/busi_224.parquet",
}


class Corner:
    """An encoder that is quick, for tests of who gets which images."""

    dim = 4
    fingerprint = "corner"

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return batch[:, 0, :2, :2].reshape(len(batch), -1)


CORNER = Corner()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(pixels: np.ndarray, *_: object, **__: object) -> np.ndarray:
        return pixels[:, :2, :2].reshape(len(pixels), 2, 2, -1)[..., 0].reshape(-1, 4) / 255.0

    monkeypatch.setattr("clma.simulation.frozen.embed_images", embed)
    monkeypatch.setattr("clma.simulation.frozen.backbone", lambda: CORNER)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    # Those of image folders have tests of their own, which make a folder.
    "name",
    [name for name in scenario_names() if name.partition("/")[0] not in LAYOUTS],
)
def test_every_scenario_makes_a_fleet_of_its_name(name: str) -> None:
    data = name.partition("/")[0].removesuffix("-short").removesuffix("-frozen")
    if data in FILES and not (DATA_DIR / FILES[data]).is_file():
        pytest.skip(f"no {FILES[data]}; set CLMA_DATA_DIR to the folder that holds it")
    more = {} if data != "cifar10" or is_embedded(name) else {"n_images": 100}
    fleet = load_scenario(name, 0, DATA_DIR, **more)

    windows, labels = fleet.training_windows(fleet.client_ids[-1], fleet.default_rounds)

    assert fleet.name == name
    assert 1 <= len(windows) == len(labels) <= fleet.n_windows
    assert len(fleet.test_windows(fleet.client_ids[0], 1)[1]) > 0


@pytest.mark.parametrize("name", GENERATED)
def test_drifting_clients_are_those_of_the_schedule(name: str) -> None:
    fleet = load_scenario(name, 0)

    schedule = name.partition("/")[2]
    wanted = {"stationary": 0, "long-noise": 0, "same": 10} | dict.fromkeys(
        (*APART, "style-groups"), 0
    )
    assert len(fleet.drifted_clients) == wanted.get(schedule, 8)


@pytest.mark.parametrize("data", ["plant", "digits"])
def test_only_covariate_and_mixed_change_what_is_seen(data: str) -> None:
    def moved(schedule: str) -> set[str]:
        events = load_scenario(f"{data}/{schedule}", 0).schedule.events
        return {event.concept.condition for event in events} - {"base"}

    assert {s for s in SCHEDULES if moved(s)} == {"covariate", "mixed"}
    assert (len(moved("covariate")), len(moved("mixed"))) == (2, 1)


@pytest.mark.parametrize("data", ["plant", "digits"])
def test_groups_of_one_style_see_it_from_the_start_and_are_tested_on_it(data: str) -> None:
    fleet = load_scenario(f"{data}/style-groups", 0)

    names = [fleet.concept(client_id, 1) for client_id in fleet.client_ids]
    assert [names.count(name) for name in dict.fromkeys(names)] == [4, 3, 3]
    base, other = (fleet.test_windows(client_id, 1)[0] for client_id in ("plant-01", "plant-10"))
    assert abs(float(base.mean() - other.mean())) > 0.01


@pytest.mark.parametrize("schedule", APART)
@pytest.mark.parametrize("data", ["plant", "digits"])
def test_client_is_tested_on_the_classes_that_it_has_in_numbers(data: str, schedule: str) -> None:
    fleet = load_scenario(f"{data}/{schedule}", 0)

    for client_id in fleet.client_ids:
        trained, tested = (
            np.bincount(labels, minlength=len(fleet.classes)) / len(labels)
            for _, labels in (
                fleet.training_windows(client_id, 1),
                fleet.test_windows(client_id, 1),
            )
        )
        np.testing.assert_allclose(tested, trained, atol=0.25)


@pytest.mark.parametrize("name", ["plant/skew", "digits/skew"])
def test_skew_is_stagger_with_other_shares_and_the_same_test(name: str) -> None:
    skewed, plain = (load_scenario(n, 0) for n in (name, name.replace("skew", "stagger")))

    assert skewed.schedule == plain.schedule
    for given, wanted in zip(
        skewed.test_windows("plant-03", 3), plain.test_windows("plant-03", 3), strict=True
    ):
        np.testing.assert_array_equal(given, wanted)


def test_plant_scenario_is_the_recipe_of_its_kind() -> None:
    scenario, recipe = load_scenario("plant/repeat", 3), load_fleet(None, "plant-repeat-concept", 3)

    assert scenario.schedule == recipe.schedule
    drawn = (fleet.training_windows("plant-05", 7) for fleet in (scenario, recipe))
    for given, wanted in zip(*drawn, strict=True):
        np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("name", ["", "moon/stagger", "/stagger", "digit/stagger"])
def test_unknown_data_names_the_known(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="unknown, wanted one of plant, dig") as caught:
        load_scenario(name, 0)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gas/repeat", "stagger, same, skew"),
        ("cranfield/mixed", "stationary, stagger, repeat, gradual, recurring, same, class"),
        ("busi/repeat", "stationary, stagger, covariate"),
        ("digits", "stationary, stagger"),
        ("digits/stagger/x", "stationary, stagger"),
    ],
)
def test_schedule_that_the_data_does_not_allow_names_those_it_does(name: str, wanted: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"has no schedule .*, wanted one of {wanted}"):
        load_scenario(name, 0)


def test_recorded_scenario_without_a_folder_says_which() -> None:
    with pytest.raises(InvalidConfigError, match=r"'gas/same' replays .*gas_drift/"):
        load_scenario("gas/same", 0)


@pytest.mark.parametrize("data", FILES)
def test_missing_folder_and_missing_file_are_named(tmp_path: Path, data: str) -> None:
    folder = FILES[data].partition("/")[0]
    with pytest.raises(InvalidConfigError, match=f"no folder {tmp_path / folder}"):
        load_scenario(f"{data}/stagger", 0, tmp_path)

    (tmp_path / folder).mkdir()
    with pytest.raises(InvalidConfigError, match=r"no file .*parquet"):
        load_scenario(f"{data}/stagger", 0, tmp_path)


def test_negative_seed_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="got seed -1, wanted seed >= 0"):
        load_scenario("plant/stagger", -1)


def test_number_of_images_is_for_cifar10() -> None:
    with pytest.raises(InvalidConfigError, match="'digits/same' takes no number of images"):
        load_scenario("digits/same", 0, n_images=100)


def test_cache_within_the_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()

    with pytest.raises(InvalidConfigError, match="lies within the data"):
        load_scenario("cifar10/stagger", 0, tmp_path, cache_dir=tmp_path / "cifar10" / "cache")


def test_names_and_generated_scenarios_need_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from clma.simulation.scenarios import load_scenario; "
        "load_scenario('plant/skew', 0).training_windows('plant-01', 1); "
        "sys.exit(bool({'torch', 'pandas', 'pyarrow', 'sklearn', 'PIL'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _documented() -> set[str]:
    """Scenarios that the first table of docs/scenarios.md has."""
    text = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    table = text[text.index("| schedule |") :].split("\n\n")[0].splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
    return {
        f"{data}/{row[0]}"
        for row in rows[2:]
        for data, cell in zip(rows[0][2:], row[2:], strict=True)
        if cell != "-"
    }


def test_documented_table_is_what_is_allowed() -> None:
    others = {"cifar10-short", "cifar10-frozen", *LAYOUTS}  # as cifar10, say the docs
    full_size = {name for name in scenario_names() if name.partition("/")[0] not in others}
    assert _documented() == full_size
