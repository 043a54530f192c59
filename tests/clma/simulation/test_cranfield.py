"""Sixteen recorded runs; the file is not in the repository."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from clma.simulation import Fleet
from clma.simulation.cranfield import CLASSES, FILE_NAME, RunSource, cranfield_fleet
from tests.clma.simulation.recorded import DATA_DIR, needs

DATA = DATA_DIR / "cranfield2015"

pytestmark = needs(f"cranfield2015/{FILE_NAME}")


@pytest.fixture(scope="module")
def gradual() -> Fleet:
    return cranfield_fleet(DATA, "gradual", 0)


@pytest.fixture(scope="module")
def stagger() -> Fleet:
    return cranfield_fleet(DATA, "stagger", 0)


def _starts(fleet: Fleet, client_id: str, part: str) -> list[int]:
    assert isinstance(fleet.source, RunSource)
    replay, place = fleet.source.replay, f"{client_id}/{part}"
    blocks = (*replay.training_blocks[client_id, place], *replay.held_out_blocks[place])
    return sorted(block.start for block in blocks)


def test_clients_are_the_sixteen_runs(stagger: Fleet) -> None:
    assert len(stagger.client_ids) == 16
    assert {"run-1.1", "run-3.3", "run-6.2"} <= set(stagger.client_ids)


def test_rounds_have_96_windows_of_24_variables(gradual: Fleet, stagger: Fleet) -> None:
    for fleet in (gradual, stagger):
        assert fleet.training_windows("run-5.1", 4)[0].shape == (96, 24, 30)


@pytest.mark.parametrize(("client_id", "fault"), [("run-1.2", 1), ("run-6.1", 6)])
def test_run_knows_its_own_classes_only(stagger: Fleet, client_id: str, fault: int) -> None:
    labels = [stagger.training_windows(client_id, r)[1] for r in (1, 2)]

    assert set(np.concatenate(labels).tolist()) == {0, fault}
    assert set(stagger.test_windows(client_id, 1)[1].tolist()) == {0, fault}


def test_groups_of_classes_are_the_faults_that_runs_recorded() -> None:
    fleet = cranfield_fleet(DATA, "class-groups", 0)

    for client_id in fleet.client_ids:
        faults = set(fleet.training_windows(client_id, 1)[1].tolist()) - {0}
        assert [fleet.concept(client_id, 1)] == [CLASSES[fault] for fault in faults]
    assert not fleet.drifted_clients


def test_no_block_is_trained_on_and_held_out(gradual: Fleet, stagger: Fleet) -> None:
    for fleet in (gradual, stagger):
        assert isinstance(fleet.source, RunSource)
        replay = fleet.source.replay
        groups = (*replay.training_blocks.values(), *replay.held_out_blocks.values())
        starts = [block.start for block in itertools.chain(*groups)]
        assert len(starts) == len(set(starts))


def test_parts_of_a_gradual_run_follow_each_other_in_time(gradual: Fleet) -> None:
    parts = ["base", *(f"part-{number:02d}" for number in range(2, 11))]

    for client_id in gradual.client_ids:
        starts = [_starts(gradual, client_id, part) for part in parts]
        assert all(max(a) < min(b) for a, b in itertools.pairwise(starts))


def test_every_part_can_be_trained_on_and_tested(gradual: Fleet) -> None:
    for client_id, round_num in itertools.product(gradual.client_ids, range(1, 11)):
        assert len(gradual.training_windows(client_id, round_num)[1]) == 96
        assert len(gradual.test_windows(client_id, round_num)[1]) >= 3


def test_concept_of_a_gradual_round_is_the_fault_that_prevails(gradual: Fleet) -> None:
    for client_id, round_num in itertools.product(gradual.client_ids, range(1, 11)):
        _, labels = gradual.training_windows(client_id, round_num)
        fault = gradual.concept(client_id, round_num).replace("base", "normal")
        assert np.mean(labels == CLASSES.index(fault)) >= 0.3


def test_gradual_runs_begin_normal_and_all_reach_their_fault(gradual: Fleet) -> None:
    for client_id in gradual.client_ids:
        concepts = [gradual.concept(client_id, r) for r in range(1, 11)]
        assert concepts[0] == "base"
        assert set(concepts) - {"base"} == {CLASSES[int(client_id[4])]}


def test_every_gradual_round_is_a_change(gradual: Fleet) -> None:
    assert all(gradual.changes("run-3.1", r) for r in range(2, 11))
    assert not gradual.changes("run-3.1", 11)


def test_rotated_labels_leave_the_windows(stagger: Fleet) -> None:
    for client_id in stagger.drifted_clients:
        (x, y), (x_after, y_after) = (stagger.test_windows(client_id, r) for r in (2, 10))
        steps = int(stagger.concept(client_id, 10).removeprefix("labels"))
        np.testing.assert_array_equal(x, x_after)
        np.testing.assert_array_equal((y + steps) % 7, y_after)


def test_thirteen_runs_drift_in_two_families_of_mixed_faults(stagger: Fleet) -> None:
    assert len(stagger.drifted_clients) == 13
    assert {stagger.concept(c, 10) for c in stagger.client_ids} == {"base", "labels+3", "labels-3"}
    assert stagger.client_ids == tuple(sorted(stagger.client_ids))


def test_seed_decides_which_runs_stay(stagger: Fleet) -> None:
    others = [cranfield_fleet(DATA, "stagger", seed).drifted_clients for seed in (0, 1)]

    assert others[0] == stagger.drifted_clients != others[1]


def test_a_round_is_half_of_a_whole_run_but_all_of_a_part(gradual: Fleet, stagger: Fleet) -> None:
    shares = [fleet.source.replay.block_share for fleet in (gradual, stagger)]  # type: ignore[attr-defined]

    assert shares == [1.0, 0.5]
