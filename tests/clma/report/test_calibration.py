"""What a calibration says: a command that can be run, settings that can be read back."""

from __future__ import annotations

import tomllib

import pytest

from clma.calibration.calibration import Calibration, learn
from clma.calibration.flags import count_flags
from clma.calibration.hindsight import Hindsight, Pair
from clma.calibration.nights import Night
from clma.calibration.rates import Rate
from clma.calibration.thresholds import Errors, Proposal
from clma.config import override_config, preset_config
from clma.report.calibration import calibration_sections, configure_command, settings_lines
from clma.report.page import to_markdown

ERRORS = Errors(Rate(0, 9), Rate(2, 9))
BETTER = Proposal("cohorting.pair_threshold", 0.4, 0.55, "fewest errors", ERRORS, ERRORS)
SAME = Proposal("cohorting.recall_threshold", 0.4, 0.4, "too few", ERRORS, ERRORS)


def learned(*proposals: Proposal, hindsight: Hindsight | None = None) -> Calibration:
    nights = {r: Night(r, n_accepted=3) for r in (1, 2)}
    flags = count_flags(nights)
    found = hindsight or Hindsight()
    return Calibration("north", 1, 2, 2, found, flags, False, proposals, ())


def test_only_changes_are_proposed() -> None:
    assert learned(BETTER, SAME).proposed == ("cohorting.pair_threshold=0.55",)
    assert configure_command("s", learned(SAME)) == ""


def test_settings_are_toml_and_what_set_takes() -> None:
    lines = settings_lines(learned(BETTER).proposed)
    assert tomllib.loads(lines) == {"cohorting": {"pair_threshold": 0.55}}
    changed = override_config(preset_config("north"), lines.splitlines())
    assert changed.cohorting.pair_threshold == 0.55


def test_a_store_with_a_blank_in_its_name_is_quoted() -> None:
    assert "--store 'my fleet' " in configure_command("my fleet", learned(BETTER))


def test_the_page_says_what_was_not_seen() -> None:
    pair = Pair(3, "a", "b", alike=False, seen=False)
    page = to_markdown("t", calibration_sections(learned(hindsight=Hindsight((pair,))), "s"))
    assert "0 belong together, 1 do not (1 of these only since they stayed apart)" in page


def test_without_losses_the_page_says_where_the_detector_can_be_replayed() -> None:
    page = to_markdown("t", calibration_sections(learned(BETTER), "s"))
    assert "Losses stay at the plants" in page


@pytest.mark.parametrize(("drifted", "teaches"), [(frozenset("a"), True), (frozenset(), False)])
def test_a_history_teaches_as_soon_as_somebody_was_set_apart(
    drifted: frozenset[str], teaches: bool
) -> None:
    nights = {2: Night(2, n_accepted=1, flagged=drifted)}
    assert learn(nights, {}, preset_config("north")).teaches is teaches
