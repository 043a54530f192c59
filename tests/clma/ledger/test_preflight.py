from __future__ import annotations

import datetime as dt
import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from clma.errors import StorageError
from clma.ledger.federation import Federation
from clma.ledger.object_store import RemoteObjects
from clma.ledger.preflight import (
    Finding,
    Health,
    check_store,
    need_of_night,
    refuse_impossible,
)
from clma.records import FederationState
from tests.clma.ledger.fleet import NOW, make_fleet
from tests.clma.ledger.refusing import refuse
from tests.clma.shelf import one_cohort


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


def found(fleet: Federation, check: str, now: dt.datetime | None = None) -> Finding:
    """Return the gravest finding of a check."""
    findings = check_store(fleet, now=now or dt.datetime.now(dt.UTC))
    order = list(Health)
    return max((f for f in findings if f.check == check), key=lambda f: order.index(f.health))


def free(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=n_bytes))


def inodes(monkeypatch: pytest.MonkeyPatch, n_free: int, n_all: int = 1000) -> None:
    free(monkeypatch, 10**12)
    status = SimpleNamespace(f_files=n_all, f_favail=n_free)
    monkeypatch.setattr(os, "statvfs", lambda _: status)


def test_a_good_disk_is_good(fleet: Federation) -> None:
    checks = {check: found(fleet, check).health for check in ("write", "room", "inodes", "clock")}

    assert set(checks.values()) == {Health.OK}


def test_looking_changes_nothing(fleet: Federation, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))

    check_store(fleet, now=NOW)

    assert sorted(tmp_path.rglob("*")) == before


def test_a_night_takes_an_update_a_client_and_a_model_a_cohort_and_one_more() -> None:
    few, many = (one_cohort("d" * 64, [f"p{i}" for i in range(n)]) for n in (10, 110))

    assert need(many) - need(few) == pytest.approx(1.1 * 100 * 10**6, abs=1)
    assert need(few) > 1.1 * (10 + 1 + 1) * 10**6


def need(state: FederationState) -> int:
    return need_of_night(state, 10**6).n_bytes


@pytest.mark.parametrize(
    ("n_bytes", "health"),
    [(10**12, Health.OK), (10**6, Health.WARNING), (1000, Health.REFUSED)],
)
def test_room_is_compared_with_what_a_night_takes(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch, n_bytes: int, health: Health
) -> None:
    free(monkeypatch, n_bytes)

    assert found(fleet, "room").health is health


def test_too_little_room_says_how_much_to_free(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 10**6)

    assert "1.0 MB are free" in found(fleet, "room").detail
    assert "free at least 15.8 MB" in found(fleet, "room").detail


@pytest.mark.parametrize(
    ("n_free", "health"), [(900, Health.OK), (5, Health.WARNING), (0, Health.REFUSED)]
)
def test_inodes_count_too(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch, n_free: int, health: Health
) -> None:
    inodes(monkeypatch, n_free)

    assert found(fleet, "inodes").health is health


def test_a_file_system_that_makes_inodes_as_needed_is_not_asked_for_them(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    inodes(monkeypatch, 0, n_all=0)

    assert not any(f.check == "inodes" for f in check_store(fleet, now=NOW))


@pytest.mark.parametrize(
    ("call", "code", "match"),
    [
        ("link", errno.EPERM, "hard links"),
        ("open", errno.EROFS, "read-only"),
        ("fsync", errno.EINVAL, "sync"),
        ("write", errno.ENOSPC, "no space"),
    ],
)
def test_a_probe_that_fails_says_why_and_leaves_nothing(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch, call: str, code: int, match: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse(code))
        with pytest.raises(StorageError, match=match):
            fleet.store.probe()

    assert not list(Path(fleet.store.url).rglob(".*"))


def test_a_folder_without_the_right_to_write_is_refused(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "models")

    finding = found(fleet, "write")

    assert finding.health is Health.REFUSED
    assert "models: permission denied" in finding.detail


def test_a_server_that_makes_an_object_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = RemoteObjects("memory://twice")
    monkeypatch.setattr(objects, "create", objects.replace)

    with pytest.raises(StorageError, match="conditional writes"):
        objects.probe()


def test_a_store_in_memory_is_warned_of(
    fleet: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clma.ledger.preflight._file_system", lambda _: "tmpfs")

    assert "survives a restart" in found(fleet, "memory").detail
    assert found(make_fleet(f"memory://{tmp_path}", tmp_path), "memory").health is Health.WARNING


def test_a_clock_behind_the_ledger_is_warned_of(fleet: Federation) -> None:
    finding = found(fleet, "clock", NOW - dt.timedelta(hours=1))

    assert finding.health is Health.WARNING


def test_a_clock_that_is_not_the_stores_is_warned_of(fleet: Federation) -> None:
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)

    assert "differ by 7200 s" in found(fleet, "clock", ahead).detail


def test_only_what_cannot_be_written_is_refused() -> None:
    warned = Finding("room", Health.WARNING, "little")
    refuse_impossible([warned])

    with pytest.raises(StorageError, match="cannot be written: full"):
        refuse_impossible([warned, Finding("room", Health.REFUSED, "full")])
