"""A lease has one holder at a time, whoever races, dies or comes back."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clma.errors import LeaseError
from clma.ledger.claims import Claim, Claims
from clma.ledger.keys import claim_key, lease_prefix
from clma.ledger.lease import hold_lease
from clma.ledger.owner import Owner, this_process
from clma.ledger.store import Store

CONTESTANT = Path(__file__).with_name("contestant.py")
ELSEWHERE = Owner("other-host", "", 1, 1, "token")


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(CONTESTANT), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)


def written(store: Store, owner: Owner, lasts_s: float, ran_out_s: float = 0.0) -> Claim:
    """Write the first claim of the lease "n"; return it."""
    now = dt.datetime.now(dt.UTC)
    claim = Claim(1, owner, now, now - dt.timedelta(seconds=ran_out_s), lasts_s)
    Claims(store, "n").write(claim)
    return claim


def wait_until_lost(lease: object) -> None:
    while lease.is_held:  # type: ignore[attr-defined]
        time.sleep(0.01)


def test_a_released_lease_is_free_at_once(store: Store) -> None:
    for _ in range(3):
        with hold_lease(store, "n", wait_s=0) as lease:
            assert lease.is_held
        assert not lease.is_held


def test_leases_of_two_names_do_not_meet(store: Store) -> None:
    with hold_lease(store, "n", wait_s=0), hold_lease(store, "m", wait_s=0) as second:
        assert second.is_held


def test_who_waits_is_told_who_holds_it_and_gives_up(store: Store) -> None:
    told: list[str] = []

    waiting = hold_lease(store, "n", wait_s=0.2, on_wait=told.append)
    with hold_lease(store, "n"), pytest.raises(LeaseError, match="waited 0 s") as failure, waiting:
        pass

    holder = f"leases/n is held by {this_process()} since 2"
    assert holder in told[0]
    assert holder in str(failure.value)
    assert len(told) == 1


def test_a_holder_stays_the_holder_for_longer_than_a_claim_lasts(store: Store) -> None:
    with hold_lease(store, "n", lasts_s=0.3) as lease:
        with pytest.raises(LeaseError), hold_lease(store, "n", wait_s=1.0):
            pass
        lease.check()


def test_silence_of_another_host_ends_its_lease(store: Store) -> None:
    written(store, ELSEWHERE, lasts_s=0.2)
    told: list[str] = []

    with hold_lease(store, "n", wait_s=60, on_wait=told.append) as lease:
        assert lease.is_held
    assert "process 1 on other-host" in told[0]


def test_a_clock_that_is_behind_costs_no_lease(store: Store) -> None:
    written(store, ELSEWHERE, lasts_s=60, ran_out_s=300)

    with pytest.raises(LeaseError, match="other-host"), hold_lease(store, "n", wait_s=0):
        pass


def test_a_claim_of_yesterday_is_not_waited_for(store: Store) -> None:
    written(store, ELSEWHERE, lasts_s=60, ran_out_s=86400)

    with hold_lease(store, "n", wait_s=0) as lease:
        assert lease.is_held


def test_who_was_followed_knows_it(store: Store) -> None:
    with hold_lease(store, "n", lasts_s=0.3) as lease:
        claims = Claims(store, "n")
        while not claims.write(claims.newest().followed_by(ELSEWHERE, 60.0)):
            pass
        wait_until_lost(lease)

        with pytest.raises(LeaseError, match="another process may hold it"):
            lease.check()
    assert claims.newest().owner == ELSEWHERE


def test_a_holder_without_its_store_gives_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    with hold_lease(Store.open(tmp_path), "n", lasts_s=0.3) as lease:
        monkeypatch.setattr(Store, "put_if_absent", full)
        wait_until_lost(lease)
        monkeypatch.undo()
    assert not Claims(Store.open(tmp_path), "n").newest().is_free


def test_a_claim_that_cannot_be_read_is_waited_for(store: Store) -> None:
    store.put_if_absent(claim_key("n", 1), b"{}")

    with pytest.raises(LeaseError, match="an unknown process"), hold_lease(store, "n", wait_s=0):
        pass


def test_old_claims_are_tidied(store: Store) -> None:
    for _ in range(20):
        with hold_lease(store, "n"):
            pass

    assert len(store.list(lease_prefix("n"))) <= 18


def test_a_number_that_was_deleted_is_not_taken_for_a_free_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who slept through twenty claims and wakes up writing does not become a second holder."""
    seen = iter([written(store, ELSEWHERE, lasts_s=0.0)])
    for _ in range(20):
        with hold_lease(store, "n"):
            pass
    truth = Claims.newest

    with hold_lease(store, "n"):
        monkeypatch.setattr(Claims, "newest", lambda claims: next(seen, None) or truth(claims))
        with pytest.raises(LeaseError), hold_lease(store, "n", wait_s=0):
            pass


def test_threads_hold_it_one_at_a_time(store: Store) -> None:
    inside: list[int] = []

    def enter(number: int) -> int:
        with hold_lease(store, "n"):
            inside.append(number)
            alone = inside == [number]
            inside.remove(number)
        return alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(enter, range(40)))


@pytest.mark.slow
def test_processes_hold_it_one_at_a_time(tmp_path: Path) -> None:
    """Each of them makes a file that must not be there, and deletes it."""
    contestants = [start("race", tmp_path, 2, 10) for _ in range(4)]

    said = [contestant.communicate(timeout=120)[0] for contestant in contestants]

    assert said == ["20\n"] * 4


@pytest.mark.slow
def test_a_killed_holder_is_followed_by_exactly_one(tmp_path: Path) -> None:
    """Twenty times, by one of two that wait; neither waits for the ten minutes of a claim."""
    herd = start("herd", tmp_path)
    assert herd.stdin is not None
    try:
        for n_holders in range(1, 22):
            herd.stdin.write("another\nanother\n" if n_holders == 1 else "another\n")
            herd.stdin.flush()
            os.kill(newest_holder(tmp_path, n_holders), signal.SIGKILL)
    finally:
        os.killpg(herd.pid, signal.SIGKILL)
        herd.communicate()


def newest_holder(folder: Path, n_holders: int) -> int:
    """Return who holds the lease as soon as so many did, and never more."""
    end, holders = time.monotonic() + 60, ()
    while len(holders) < n_holders and time.monotonic() < end:
        time.sleep(0.02)
        log = folder / "holders"
        holders = tuple(log.read_text().split()) if log.exists() else ()
    assert len(holders) == n_holders
    return int(holders[-1])
