from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from clma.ledger.federation import Federation
from tasks.choose_round import choose_round
from tests.tasks.nights import pass_night, start


def choose(federation: Federation, *, now: bool) -> int | None:
    return choose_round.fn(federation.store.url, federation.name, now).round_num


def test_round_before_its_deadline_is_closed_only_if_asked(tmp_path: Path) -> None:
    federation = start(tmp_path, "asked")
    federation.open_round(now=dt.datetime.now(dt.UTC))
    federation.store.put_once("inbox/round=000001/p0/update.json", b"{}")

    assert choose(federation, now=False) is None
    assert choose(federation, now=True) == 1


def test_round_that_nobody_answered_is_not_closed_before_its_deadline(tmp_path: Path) -> None:
    """Whoever starts a killed night again must not close the round that it had opened already."""
    federation = start(tmp_path, "silent")
    pass_night(federation)
    federation.open_round(now=dt.datetime.now(dt.UTC))

    assert choose(federation, now=True) is None


def test_round_that_nobody_answered_is_closed_when_it_is_due(tmp_path: Path) -> None:
    federation = start(tmp_path, "due")
    federation.open_round(now=dt.datetime.now(dt.UTC) - dt.timedelta(days=2))

    assert choose(federation, now=False) == 1


def test_sealed_round_is_gone_on_with(tmp_path: Path) -> None:
    federation = start(tmp_path, "sealed")
    now = dt.datetime.now(dt.UTC)
    federation.open_round(now=now)
    federation.seal_round(now=now, force=True)

    assert choose(federation, now=False) == 1


def test_half_written_files_are_swept_first(tmp_path: Path) -> None:
    federation = start(tmp_path, "swept")
    federation.open_round(now=dt.datetime.now(dt.UTC))
    draft = tmp_path / "store" / "models" / ".half.tmp"
    draft.touch()
    os.utime(draft, (0, 0))

    choose(federation, now=False)

    assert not draft.exists()
