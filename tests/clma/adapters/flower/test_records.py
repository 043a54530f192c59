from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord

from clma.adapters.flower.records import to_record, to_tensors
from clma.errors import InvalidUpdateError
from clma.records import TensorSpec


def npy(values: np.ndarray, **header: object) -> bytes:
    """Return a NumPy file whose header says something else."""
    stream = io.BytesIO()
    said = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape, **header}
    np.lib.format.write_array_header_1_0(stream, said)
    return stream.getvalue() + values.tobytes()


def record(data: bytes, stype: str = "numpy.ndarray") -> ArrayRecord:
    return ArrayRecord({"w": Array("float32", (2,), stype, data)})


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.array(7, np.int64),
        np.zeros((0, 3), np.float32),
        np.arange(3, dtype=">f4"),
        np.array([True, False]),
    ],
)
def test_arrays_come_back_as_they_were(values: np.ndarray) -> None:
    back = to_tensors(to_record({"w": values}))["w"]

    np.testing.assert_array_equal(back, values)
    assert back.shape == values.shape


def test_floats_are_rounded_to_the_model_and_integers_are_not() -> None:
    specs = [TensorSpec("w", "F32", (2,)), TensorSpec("n", "I64", ())]
    given = to_record({"w": np.array([0.1, 0.2]), "n": np.array(3, np.int32)})

    back = to_tensors(given, specs)

    assert (back["w"].dtype, back["n"].dtype) == (np.float32, np.int32)


TWO = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record(b""), "is no NumPy file"),
        (record(b"\x93NUMPY\x01\x00\x05\x00((((("), "is no NumPy file"),
        (record(b"x", stype="pickle"), "stored as 'pickle'"),
        (record(npy(TWO, shape=(10**12,))), "its data are 8 bytes"),
        (record(npy(TWO, shape=(-1, -2))), "its data are 8 bytes"),
        (record(npy(TWO, descr="|O")), "wanted numbers"),
        (record(npy(TWO, descr="<U2")), "wanted numbers"),
        (record(npy(TWO)[:-1]), "its data are 7 bytes"),
        (record(npy(TWO) + b"\x00"), "its data are 9 bytes"),
    ],
)
def test_bytes_that_are_not_what_they_claim_are_refused(bad: ArrayRecord, message: str) -> None:
    with pytest.raises(InvalidUpdateError, match=message):
        to_tensors(bad)
