"""One federation has one publisher at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clma.errors import InvalidConfigError, LeaseError
from clma.ledger.federation import Federation
from clma.ledger.keys import lease_prefix
from clma.ledger.lease import hold_lease
from tasks.tracking import Tracking, one_publisher, publish_cohort, published_rounds, rebuild
from tasks.tracking.publisher import WAIT_VARIABLE
from tests.tasks.nights import pass_night, start
from tests.tasks.test_tracking_publish import runs_of, versions_of

pytestmark = pytest.mark.slow

PUBLISH = """
import sys
from pathlib import Path
from clma.ledger.federation import Federation
from tasks.tracking import Tracking, rebuild
federation = Federation.open(sys.argv[1])
Path(sys.argv[4]).touch()
while not Path(sys.argv[5]).exists():
    pass
rebuild(federation, Tracking(sys.argv[2], sys.argv[3]))
"""


@pytest.fixture
def federation(tmp_path: Path, request: pytest.FixtureRequest) -> Federation:
    """One night of four plants."""
    federation = start(tmp_path, re.sub(r"\W+", "-", request.node.name)[:60])
    pass_night(federation)
    return federation


def test_processes_that_publish_at_once_make_each_run_and_version_once(
    federation: Federation, tracking: Tracking, tmp_path: Path
) -> None:
    pass_night(federation, drifted=("p2", "p3"))
    go = tmp_path / "go"
    ready = [tmp_path / f"ready-{n}" for n in range(3)]
    place = [federation.store.url, tracking.uri, str(tracking.artifacts)]
    publishers = [
        subprocess.Popen([sys.executable, "-c", PUBLISH, *place, str(r), str(go)]) for r in ready
    ]
    while not all(r.exists() for r in ready):
        assert all(p.poll() is None for p in publishers)
    go.touch()

    assert [p.wait(timeout=250) for p in publishers] == [0, 0, 0]
    keys = [r.data.tags["clma.round_key"] for r in runs_of(federation, tracking)]
    assert sorted(keys) == [f"{federation.name}/{k}" for k in ("1", "1/c0", "2", "2/c0", "2/c1")]
    assert versions_of(federation, tracking) == ["1/c0", "2/c0", "2/c1"]
    assert published_rounds(federation, tracking) == (1, 2)


def test_threads_that_publish_one_cohort_make_one_version(
    federation: Federation, tracking: Tracking
) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: publish_cohort(federation, 1, "c0", tracking), range(3)))

    assert versions_of(federation, tracking) == ["1/c0"]


def test_another_publisher_is_waited_for_and_then_named(
    federation: Federation, tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "0")
    whose = f"publishing '{federation.name}': .*leases/publish is held by process {os.getpid()}"

    with hold_lease(federation.store, "publish"), pytest.raises(LeaseError, match=whose):
        rebuild(federation, tracking)


def test_a_night_takes_the_lease_once(federation: Federation, tracking: Tracking) -> None:
    with one_publisher(federation):
        rebuild(federation, tracking)
        publish_cohort(federation, 1, "c0", tracking)

    taken_and_released = 2
    assert len(federation.store.list(lease_prefix("publish"))) == taken_and_released


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e9"])
def test_a_wait_is_a_number_of_seconds(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, text)

    with pytest.raises(InvalidConfigError, match=f"{WAIT_VARIABLE} is '{text}'"):
        rebuild(federation, Tracking("unused", None))
