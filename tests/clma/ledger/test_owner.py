from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from clma.ledger.owner import is_gone, this_process

pytestmark = pytest.mark.skipif(not this_process().place, reason="needs /proc")


def test_this_process_lives() -> None:
    assert not is_gone(this_process())


def test_two_owners_of_one_process_differ() -> None:
    assert this_process() != this_process()


def test_a_process_that_ended_is_gone_before_anybody_collects_it() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)

    owner = dataclasses.replace(this_process(), pid=ended.pid)
    assert is_gone(owner)
    ended.wait()
    assert is_gone(owner)


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    assert is_gone(dataclasses.replace(this_process(), started=1))


@pytest.mark.parametrize("place", ["", "another boot pid:[1]"])
def test_nothing_is_known_of_another_machine(place: str) -> None:
    assert not is_gone(dataclasses.replace(this_process(), place=place, pid=2**22 - 1))
