from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clma.client import read_parameters, write_parameters
from clma.errors import ShapeMismatchError, StorageError
from clma.parameters.tensor_file import TensorFile, TensorFileError, serialize_tensors
from clma.records import TensorSpec


def test_what_was_written_is_read_and_may_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "plant" / "m.safetensors"
    write_parameters(path, {"w": np.ones((2, 3), np.float32), "n": np.array(4)})

    read = read_parameters(path)
    read["w"][:] = 5.0

    assert read_parameters(path)["w"].sum() == 6.0
    assert read["n"].shape == ()


def test_an_update_is_written_in_the_dtypes_of_the_pulled_model(tmp_path: Path) -> None:
    base, update = tmp_path / "base.safetensors", tmp_path / "update.safetensors"
    base.write_bytes(serialize_tensors({"w": np.ones(2)}, [TensorSpec("w", "BF16", (2,))]))

    write_parameters(update, read_parameters(base), like=base)

    assert read_parameters(base)["w"].dtype == np.float32
    with TensorFile(update) as file:
        assert file.spec("w").dtype == "BF16"


def test_an_update_of_another_shape_is_refused_and_leaves_the_file(tmp_path: Path) -> None:
    base = tmp_path / "base.safetensors"
    write_parameters(base, {"w": np.ones(2)})
    before = base.read_bytes()

    with pytest.raises(ShapeMismatchError, match=r"'w' has shape \[1\], wanted \[2\]"):
        write_parameters(base, {"w": np.ones(1)}, like=base)

    assert base.read_bytes() == before


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("not a model")

    with pytest.raises(StorageError, match=r"absent\.safetensors"):
        read_parameters(tmp_path / "absent.safetensors")
    with pytest.raises(TensorFileError):
        read_parameters(tmp_path / "m")
