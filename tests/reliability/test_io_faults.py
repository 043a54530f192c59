"""Every write call of a small day and night fails once; the whole plan is ``make faulttest``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clma.ledger import durable_file, local_disk
from tests.reliability.faulty_disk import Fault, FaultyDisk
from tests.reliability.io_faults import count_calls, meet, one_fault_each
from tests.reliability.small_night import Scene, scenes

READING = {"read", "list"}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    return {scene.name: scene for scene in scenes(tmp_path_factory.mktemp("faults"))}


@pytest.mark.parametrize("name", ["day", "night"])
def test_a_fault_at_any_write_call_breaks_no_promise(played: dict[str, Scene], name: str) -> None:
    """One line, nothing half-written, no receipt too early, and the same bytes the next time."""
    kinds = count_calls(played[name])
    faults = [fault for fault in one_fault_each(kinds) if kinds[fault.at] not in READING]

    outcomes = [meet(played[name], fault) for fault in faults]

    assert len(outcomes) > 60
    assert [outcome for outcome in outcomes if outcome.problems] == []


@pytest.mark.parametrize("kind", sorted(READING))
def test_a_fault_at_a_read_call_breaks_no_promise(played: dict[str, Scene], kind: str) -> None:
    kinds = count_calls(played["night"])
    faults = [fault for fault in one_fault_each(kinds) if kinds[fault.at] == kind][::5]

    outcomes = [meet(played["night"], fault) for fault in faults]

    assert [outcome for outcome in outcomes if outcome.problems] == []


def no_discard(_: Path) -> None:
    pass


def no_sync(_: Path) -> None:
    pass


def no_durability(_disk: object, _key: str) -> None:
    pass


@pytest.mark.parametrize(
    ("place", "name", "careless", "kind", "complaint"),
    [
        (durable_file, "discard", no_discard, "write", "a draft is left"),
        (local_disk, "sync_folder", no_sync, "create", "is not on the disk"),
        (local_disk.LocalDisk, "make_durable", no_durability, "sync-folder", "is not on the disk"),
    ],
)
def test_a_careless_disk_is_found_out(
    played: dict[str, Scene],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    careless: Callable[..., None],
    kind: str,
    complaint: str,
) -> None:
    """What judges the disk is judged: each care that is left out is seen."""
    monkeypatch.setattr(place, name, careless)
    kinds = count_calls(played["day"])
    faults = [Fault("EIO", at) for at, found in enumerate(kinds) if found == kind]

    problems = [text for fault in faults for text in meet(played["day"], fault).problems]

    assert any(complaint in text for text in problems)


def test_a_write_through_a_buffer_is_found_out(tmp_path: Path) -> None:
    with FaultyDisk(tmp_path) as disk:
        (tmp_path / "a").write_bytes(b"1")

    assert disk.violations == ["a is written where short writes are not seen"]
