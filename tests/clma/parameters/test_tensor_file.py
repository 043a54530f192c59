from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clma.errors import ShapeMismatchError
from clma.parameters.tensor_file import (
    TensorFile,
    TensorFileError,
    TensorLimits,
    serialize_tensors,
)
from clma.records import TensorSpec


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "t.safetensors"
    path.write_bytes(data)
    return path


def with_header(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda s: s != "__metadata__"),
        hnp.arrays(
            st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.bool_, np.uint8]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=5,
    )
)
def test_the_library_reads_what_we_write(tensors: dict[str, Any]) -> None:
    found = dict(safetensors.deserialize(serialize_tensors(tensors)))

    assert set(found) == set(tensors)
    for name, array in tensors.items():
        assert tuple(found[name]["shape"]) == array.shape
        assert bytes(found[name]["data"]) == array.tobytes()


def test_order_of_names_does_not_change_the_bytes() -> None:
    one, two = np.zeros(3, np.float32), np.ones((2, 2))
    assert serialize_tensors({"a": one, "b": two}) == serialize_tensors({"b": two, "a": one})


def test_bfloat16_is_read_exactly_and_rounded_to_even(tmp_path: Path) -> None:
    spec = [TensorSpec("w", "BF16", (4,))]
    values = np.array([1.0, 1.00390625, 1.01171875, -3.0], np.float32)

    with TensorFile(written(tmp_path, serialize_tensors({"w": values}, spec))) as file:
        assert file.specs == tuple(spec)
        assert file.read("w").tolist() == [1.0, 1.0, 1.015625, -3.0]


def test_views_of_the_file_cannot_be_written(tmp_path: Path) -> None:
    path = written(tmp_path, serialize_tensors({"w": np.zeros(2, np.float32)}))
    with TensorFile(path) as file, pytest.raises(ValueError, match="read-only"):
        file.read("w")[0] = 1.0


def test_nothing_is_broadcast_when_writing() -> None:
    with pytest.raises(ShapeMismatchError, match=r"shape \[1\], wanted \[3\]"):
        serialize_tensors({"w": np.zeros(1)}, [TensorSpec("w", "F32", (3,))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 8"),
        (b"\x80\x02}q\x00.", "at least 8"),
        ((2**60).to_bytes(8, "little") + b"{}", "header claims"),
        (with_header(b"\xff\xfe"), "not JSON"),
        (with_header(b"[" * 100_000), "not JSON"),
        (with_header([1]), "JSON list"),
        (with_header(b'{"w": {}, "w": {}}'), "one key twice"),
        (with_header({"w": {"dtype": "F32"}}), "wanted dtype, shape and data_offsets"),
        (with_header({"w": entry("F8_E5M2")}, bytes(4)), "cannot be averaged"),
        (with_header({"w": entry(shape=(-1,))}, bytes(4)), "not a list"),
        (with_header({"w": entry(shape=(True,))}, bytes(4)), "not a list"),
        (with_header({"w": entry(offsets=(0, 8))}, bytes(8)), "its shape needs 4"),
        (with_header({"w": entry(offsets=(4, 8))}, bytes(8)), "leave a hole"),
        (with_header({"v": entry(), "w": entry()}, bytes(4)), "overlap"),
        (with_header({"w": entry()}, bytes(9)), "the file at"),
        (with_header({"": entry()}, bytes(4)), "name of 0 characters"),
    ],
)
def test_malformed_files_are_refused_in_words(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(TensorFileError, match=message):
        TensorFile(written(tmp_path, data))


def test_limits_are_checked_before_anything_is_decoded(tmp_path: Path) -> None:
    path = written(tmp_path, serialize_tensors({"a": np.zeros(2), "b": np.zeros(2)}))
    for limits in (TensorLimits(file_bytes=10), TensorLimits(n_tensors=1), TensorLimits(n_dims=0)):
        with pytest.raises(TensorFileError):
            TensorFile(path, limits=limits)
