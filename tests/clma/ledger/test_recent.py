from __future__ import annotations

import pytest

from clma.ledger.recent import Recent


def test_equal_bytes_are_made_into_a_value_once() -> None:
    recent = Recent(bytearray, n_kept=2)

    assert recent.of(b"ab") is recent.of(bytes([97, 98]))
    assert recent.of(b"ab") is not recent.of(b"cd")


def test_only_the_newest_values_stay() -> None:
    recent = Recent(bytearray, n_kept=2)
    first, second = recent.of(b"1"), recent.of(b"2")

    assert recent.of(b"1") is first
    recent.of(b"3")

    assert recent.of(b"1") is first
    assert recent.of(b"2") is not second


def test_what_cannot_be_made_is_tried_again() -> None:
    recent = Recent(lambda data: 1 // int(data), n_kept=2)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            recent.of(b"0")
    assert recent.of(b"1") == 1
