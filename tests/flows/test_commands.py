"""What all commands share: interrupts are noticed wherever they hit."""

from __future__ import annotations

import os
import signal

import pytest

from flows._commands import noticed_interrupts


class Interrupted:
    """Is interrupted while it is deleted, where nothing can be raised."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass


class Broken:
    def __del__(self) -> None:
        raise ValueError("something else")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_in_a_destructor_is_noticed_and_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with noticed_interrupts() as noticed:
        del_me = Interrupted()
        del del_me

    assert noticed.is_set()
    assert capsys.readouterr().err == ""


def test_what_else_is_lost_is_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: seen.append(lost.exc_value))

    with noticed_interrupts():
        del_me = Broken()
        del del_me

    assert [str(error) for error in seen] == ["something else"]
