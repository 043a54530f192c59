from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.errors import InvalidUpdateError
from clma.parameters.tensor_file import serialize_tensors
from clma.signatures.file import MAX_CLASSES, MAX_FEATURES, read_signature, signature_bytes
from clma.signatures.signature import Signature

ARRAYS: dict[str, Any] = {
    "classes": np.array([0, 3]),
    "means": np.array([[1, 0], [0, 2]], np.float32),
    "shares": np.array([0.25, 0.75]),
}


def read(path: Path, arrays: dict[str, Any] | bytes, kind: str = "fmcl") -> Signature:
    path.write_bytes(arrays if isinstance(arrays, bytes) else serialize_tensors(arrays))
    return read_signature(path, kind, "encoder")


def test_signature_survives_the_file_and_keeps_its_bytes(tmp_path: Path) -> None:
    data = signature_bytes(Signature("fmcl", ARRAYS, "encoder"))

    again = read(tmp_path / "s", data)

    assert all(np.array_equal(again.arrays[n], ARRAYS[n]) for n in ARRAYS)
    assert signature_bytes(again) == data


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"means": np.array([[np.nan, 0], [0, 2]], np.float32)}, "NaN or infinite"),
        ({"means": np.zeros((2, 2), np.float32)}, "class 0: the mean embedding is zero"),
        ({"means": np.ones((2, 2))}, "means F64"),
        ({"means": np.ones(2, np.float32)}, "shapes"),
        ({"means": np.ones((2, 0), np.float32)}, "shapes"),
        ({"classes": np.array([3, 0])}, "rising"),
        ({"classes": np.array([-1, 0])}, "rising"),
        ({"classes": np.array([0, 1, 2])}, "shapes"),
        ({"shares": np.array([0.5, 0.6])}, "add up"),
        ({"shares": np.array([0.0, 1.0])}, "above 0"),
        ({"more": np.zeros(1)}, "more F64"),
        ({"means": np.ones((2, MAX_FEATURES + 1), np.float32)}, "at most"),
        ({"means": np.ones((MAX_CLASSES + 1, 1), np.float32)}, "at most"),
    ],
)
def test_what_is_no_signature_is_refused(
    tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidUpdateError, match=says):
        read(tmp_path / "s", {**ARRAYS, **changed})


@pytest.mark.parametrize("n_kept", [0, 7, 30, -8])
def test_truncated_file_is_refused(tmp_path: Path, n_kept: int) -> None:
    with pytest.raises(InvalidUpdateError):
        read(tmp_path / "s", signature_bytes(Signature("fmcl", ARRAYS, "encoder"))[:n_kept])


def test_claimed_size_costs_no_memory(tmp_path: Path) -> None:
    header = b'{"means":{"dtype":"F32","shape":[1000000000,1],"data_offsets":[0,4000000000]}}'

    with pytest.raises(InvalidUpdateError):
        read(tmp_path / "s", len(header).to_bytes(8, "little") + header)


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidUpdateError, match="kind 'pacfl', wanted 'fmcl'"):
        read(tmp_path / "s", ARRAYS, kind="pacfl")


def test_nothing_is_written_that_would_not_be_read() -> None:
    with pytest.raises(InvalidUpdateError, match="at most"):
        signature_bytes(Signature("fmcl", {**ARRAYS, "means": np.ones((2, MAX_FEATURES + 1))}))
