from __future__ import annotations

from typing import Any

import pytest

from clma.config import (
    PRESETS,
    config_digest,
    parse_config,
    preset_config,
    render_config,
    requirements,
)
from clma.errors import InvalidConfigError

SCHEDULE = [
    {"from_round": 1, "labels": {"plant.1": "a", "p2": "a"}},
    {"from_round": 3, "labels": {"plant.1": "b", "p2": "a"}},
]


@pytest.mark.parametrize("preset", PRESETS)
def test_written_configuration_reads_back_equal(preset: str) -> None:
    share = ["weights", *sorted(requirements(preset) - {"weights"})]
    config = preset_config(
        "fleet",
        preset,
        model_factory="a.b:c",
        model_arguments={"n": 3},
        privacy={"share": share},
    )
    assert parse_config(render_config(config)) == config


def test_schedule_reads_back_equal() -> None:
    config = preset_config("fleet", "oracle", cohorting={"schedule": SCHEDULE})
    assert parse_config(render_config(config)) == config


def test_presets_are_not_changed_by_their_use() -> None:
    preset_config("fleet", "clma-literal", overrides=["drift.gamma=0.7"])
    assert preset_config("fleet", "clma-literal").drift.gamma == 0.1


OURS = {"clma", "clma-flag", "clma-choice", "clma-probe", "clma-sketch", "fmcl-clma"}


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - OURS))
def test_methods_of_the_literature_average_everybody(preset: str) -> None:
    share = sorted(requirements(preset))
    aggregation = preset_config("fleet", preset, privacy={"share": share}).aggregation
    assert (aggregation.method, aggregation.outlier_check) == ("weighted_mean", False)


def test_the_product_bounds_what_one_plant_can_do() -> None:
    aggregation = preset_config("fleet").aggregation
    assert (aggregation.method, aggregation.outlier_check) == ("clipped_mean", True)


def test_a_configuration_from_before_there_was_a_check_has_none() -> None:
    text = render_config(preset_config("fleet", overrides=["aggregation.method=weighted_mean"]))
    old = "\n".join(line for line in text.splitlines() if not line.startswith("outlier_"))
    aggregation = parse_config(old).aggregation
    assert (aggregation.method, aggregation.outlier_check) == ("weighted_mean", False)


def test_override_takes_toml_or_a_bare_word() -> None:
    config = preset_config(
        "fleet", overrides=["cohorting.method=singletons", "cohorting.recall=false"]
    )
    assert config.cohorting.method == "singletons"
    assert config.cohorting.recall is False


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("drift.gama=0.2", "drift.gama: Extra inputs"),
        ("drift.gamma=-1", "drift.gamma: .*greater than 0, got -1"),
        ("drift.gamma=nan", "drift.gamma"),
        ("cohorting.method=magic", "cohorting.method"),
        ("cohorting.method=given", "go together"),
        ("gamma", "wants section.key=value, got 'gamma'"),
        ('privacy.share=["weights"]', "needs examples, flag, privacy.share names only weights"),
        ("model_factory=os.system", "model_factory"),
        ("aggregation.method=mode", "aggregation.method"),
        ("aggregation.trim_fraction=0.5", "trim_fraction: .*less than 0.5, got 0.5"),
        ("aggregation.clip_factor=0", "clip_factor: .*greater than 0, got 0"),
        ("aggregation.n_byzantine=-1", "n_byzantine: .*greater than or equal to 0, got -1"),
        ("aggregation.outlier_cosine=0.2", "outlier_cosine: .*less than or equal to 0, got 0.2"),
        ("aggregation.outlier_z=1", "outlier_z: .*less than or equal to 0, got 1"),
        ("aggregation.server_optimizer=adam", "aggregation.server_optimizer"),
        ("aggregation.server_learning_rate=0", "server_learning_rate: .*greater than 0, got 0"),
        ("aggregation.n_selected=0", "n_selected: .*greater than or equal to 1, got 0"),
    ],
)
def test_wrong_setting_is_named(override: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        preset_config("fleet", overrides=[override])


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "-x", "x" * 65, "=cmd()"])
def test_hostile_federation_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="federation"):
        preset_config(name)


def test_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match=r"wanted one of .*clma, clma-choice"):
        preset_config("fleet", "best")


def test_text_that_is_not_toml_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="not valid TOML"):
        parse_config("= 3")


def test_digest_changes_with_any_setting() -> None:
    base: Any = preset_config("fleet")
    assert config_digest(base) == config_digest(preset_config("fleet"))
    assert config_digest(base) != config_digest(preset_config("fleet", overrides=["seed=1"]))
