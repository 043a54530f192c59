"""What the methods ask of the clients, and that the privacy policy is asked first."""

from __future__ import annotations

import typing

import pytest

import clma.cohorting.methods as methods
from clma.config import PRESETS, CohortingConfig, preset_config, requirements
from clma.errors import InvalidConfigError
from clma.methods import METHODS

ASKS_FOR_MORE = {
    "clma-choice": "choice",
    "clma-probe": "choice",
    "ifca": "choice",
    "feddrift": "loss_vector",
    "feddrift-eager": "loss_vector",
    "pacfl": "signature",
    "fecfl": "signature",
    "fmcl": "signature",
    "fmcl-paper": "signature",
    "fmcl-clma": "signature",
}


def test_every_method_of_the_configuration_has_traits_and_functions() -> None:
    names = set(typing.get_args(CohortingConfig.model_fields["method"].annotation))
    assert names == set(METHODS) == set(methods.METHODS)


@pytest.mark.parametrize("preset", sorted(ASKS_FOR_MORE))
def test_policy_refuses_a_method_by_the_name_of_what_it_lacks(preset: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"needs {ASKS_FOR_MORE[preset]}"):
        preset_config("test", preset)


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - set(ASKS_FOR_MORE)))
def test_other_presets_need_no_more_than_weights_flag_and_examples(preset: str) -> None:
    assert requirements(preset) <= {"weights", "flag", "examples"}
    preset_config("test", preset)


@pytest.mark.parametrize("preset", sorted(ASKS_FOR_MORE))
def test_method_runs_where_the_operator_shares_what_it_needs(preset: str) -> None:
    preset_config("test", preset, privacy={"share": sorted(requirements(preset))})


def test_unknown_preset_has_no_requirements() -> None:
    with pytest.raises(InvalidConfigError, match="preset 'nobody' is unknown"):
        requirements("nobody")
