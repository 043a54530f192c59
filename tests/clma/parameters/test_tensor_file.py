from __future__ import annotations

import json
import os
import tempfile
from fractions import Fraction
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
    NUMPY_DTYPES,
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


arrays = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    hnp.arrays(
        st.sampled_from([NUMPY_DTYPES[name] for name in NUMPY_DTYPES if name != "BF16"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    max_size=5,
)


@given(arrays)
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


def nearest_bfloat16(value: float) -> float:
    """Return the nearest bfloat16, of two that are as near the even one, by looking at them all."""
    first = int(np.float32(value).view(np.uint32)) >> 16
    near = np.array([first - 1, first, first + 1], np.int64).clip(0, 2**16 - 1)
    values = (near.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    distances = [
        (abs(Fraction(v) - Fraction(value)), int(b) % 2) for v, b in zip(values, near, strict=True)
    ]
    return float(values[distances.index(min(distances))])


@given(st.floats(min_value=2.0**-140, max_value=3e38))
def test_doubles_become_the_nearest_bfloat16(value: float) -> None:
    data = serialize_tensors({"w": np.array([-value])}, [TensorSpec("w", "BF16", (1,))])
    bits = np.frombuffer(data[-2:], "<u2").astype(np.uint32) << 16
    assert float(bits.view(np.float32)[0]) == -nearest_bfloat16(value)


@pytest.mark.parametrize(
    ("beside", "bits"), [(2.0**-40, 0x3F81), (0, 0x3F80), (-(2.0**-40), 0x3F80)]
)
def test_a_double_beside_the_middle_is_rounded_once(beside: float, bits: int) -> None:
    value = np.array([1 + 2.0**-8 + beside])
    data = serialize_tensors({"w": value}, [TensorSpec("w", "BF16", (1,))])
    assert int.from_bytes(data[-2:], "little") == bits


@pytest.mark.parametrize("mapped", [True, False])
@given(tensors=arrays, n_values=st.integers(1, 9))
def test_pieces_make_up_the_tensor(tensors: dict[str, Any], n_values: int, mapped: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), serialize_tensors(tensors))
        with TensorFile(path, mapped=mapped) as file:
            for name, array in tensors.items():
                pieces = list(file.blocks(name, n_values))
                assert b"".join(p.tobytes() for p in pieces) == array.tobytes()
                assert file.read(name).tobytes() == array.tobytes()
                assert file.read(name).shape == array.shape


@pytest.mark.parametrize("mapped", [True, False])
def test_a_tensor_at_an_odd_place_is_read(tmp_path: Path, mapped: bool) -> None:
    header = {"a": entry("U8", (1,), (0, 1)), "b": entry("F64", (2,), (1, 17))}
    body = b"\x07" + np.array([0.5, -0.0]).tobytes()
    with TensorFile(written(tmp_path, with_header(header, body)), mapped=mapped) as file:
        assert str(file.read("b").tolist()) == "[0.5, -0.0]"


def test_a_file_that_becomes_shorter_gives_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, serialize_tensors({"w": np.zeros(10_000)}))
    with TensorFile(path, mapped=False) as file:
        os.truncate(path, 5_000)
        with pytest.raises(TensorFileError, match="it was longer when opened"):
            list(file.blocks("w", 1000))


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TensorFileError, match="not a plain file"):
        TensorFile(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["", "__metadata__", "\ud800", "x" * 513])
def test_a_name_that_no_file_can_hold_is_not_written(name: str) -> None:
    with pytest.raises(TensorFileError, match="tensor"):
        serialize_tensors({name: np.zeros(1)})


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
        (with_header(b'{"\xff\xfe'), "not JSON"),
        (with_header(b'{"a":' * 100_000), "not JSON"),
        (with_header([1]), "does not begin"),
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
