from __future__ import annotations

import pytest

from tasks.brief_log import log_lines, named


@pytest.mark.parametrize(
    ("n_lines", "last"), [(2, "line 1"), (3, "line 2"), (9, "... and 6 more: see drift.parquet")]
)
def test_what_is_left_out_is_counted(n_lines: int, last: str) -> None:
    logged: list[str] = []

    log_lines(logged.append, (f"line {i}" for i in range(n_lines)), "drift", most=3)

    assert logged[:2] == ["line 0", "line 1"]
    assert logged[-1].startswith(last)


def test_few_names_are_all_named() -> None:
    assert named(["a", "b"]) == "a, b"
    assert named([]) == "nobody"
