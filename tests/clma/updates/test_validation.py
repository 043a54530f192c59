from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clma.errors import InvalidUpdateError
from clma.parameters.tensor_file import TensorFile, serialize_tensors, specs_of
from clma.records import ArtifactRef, TensorSpec, UpdateMessage
from clma.updates import validation
from clma.updates.reasons import EXPLANATIONS, Reason
from clma.updates.validation import ExpectedUpdate, admit, check_digest, check_tensors, limits_for
from tests.clma.ledger.fleet import model, written

EXPECTED = ExpectedUpdate(
    "f", "p0", 1, "ab" * 32, specs_of(model()), ("weights", "flag", "examples")
)


def checked(path: Path, tensors: Mapping[str, Any] | bytes, expected: ExpectedUpdate) -> None:
    check_tensors(written(path, tensors), expected)


def test_every_reason_is_explained_in_one_sentence() -> None:
    assert set(EXPLANATIONS) == set(Reason)
    assert all(text.endswith(".") and "\n" not in text for text in EXPLANATIONS.values())


def sent(**fields: Any) -> UpdateMessage:
    message = UpdateMessage("f", "p0", 1, "ab" * 32, 9, True, "cd" * 32, "2026-01-05T20:00:00Z")
    return dataclasses.replace(message, **fields)


def test_a_good_update_is_sealed_with_its_place() -> None:
    place = ArtifactRef("rounds/x", "cd" * 32)

    found = admit(sent(), EXPECTED, place, dt.datetime(2026, 1, 5, 21, tzinfo=dt.UTC))

    assert found.notes == ()
    assert (found.update.n_examples, found.update.drift_flag) == (9, True)
    assert found.update.tensors == place


def test_a_clock_that_is_days_off_is_noted_and_decides_nothing() -> None:
    received_at = dt.datetime(2026, 1, 9, 20, tzinfo=dt.UTC)

    found = admit(sent(), EXPECTED, ArtifactRef("rounds/x", "cd" * 32), received_at)

    assert found.notes == ((Reason.CLOCK_SKEW, "the client's clock is -96.0 h off the store's"),)
    assert found.update.n_examples == 9


def test_tensors_of_another_digest_are_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="tensors have efefefefefef, message says cdcd"):
        check_digest("ef" * 32, sent(), EXPECTED)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_is_read_and_searched_for_nan(tmp_path: Path, dtype: str) -> None:
    specs = (TensorSpec("w", dtype, (2,)),)
    expected = ExpectedUpdate("f", "p0", 1, "ab" * 32, specs, ())
    good = np.array([1.0, 6e4], np.float32)

    checked(tmp_path / "good", serialize_tensors({"w": good}, specs), expected)
    with pytest.raises(InvalidUpdateError, match="'w' has 1 value"):
        checked(tmp_path / "bad", serialize_tensors({"w": good * [1, np.nan]}, specs), expected)


@pytest.mark.parametrize(("value", "taken"), [(1e100, True), (-1e100, True), (-1.01e100, False)])
def test_weights_whose_squares_cannot_be_added_up_are_refused(
    tmp_path: Path, value: float, taken: bool
) -> None:
    """One of them would end the round for everybody, when movements are compared."""
    specs = (TensorSpec("w", "F64", (2,)),)
    expected = ExpectedUpdate("f", "p0", 1, "ab" * 32, specs, ())
    outcome = contextlib.nullcontext() if taken else pytest.raises(InvalidUpdateError)

    with outcome as caught:
        checked(tmp_path / "t", serialize_tensors({"w": np.array([0, value])}), expected)

    assert taken or caught.value.reason == Reason.NON_FINITE


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=8))
def test_any_change_of_bytes_is_taken_or_refused(changes: list[tuple[int, int]]) -> None:
    """Whatever lies in the file, the gate answers with a reason and never with a traceback."""
    data = bytearray(serialize_tensors(model()))
    for position, value in changes:
        data[position % len(data)] = value

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(InvalidUpdateError):
        checked(Path(folder) / "t", bytes(data), EXPECTED)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_header_says_the_same_or_is_refused(position: int, value: int) -> None:
    """A space may become another one; no change of one byte makes other tensors of the same."""
    good = serialize_tensors(model(0.5))
    stop = 8 + int.from_bytes(good[:8], "little")
    data = bytearray(good)
    data[position % stop] = value

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(InvalidUpdateError):
        path = Path(folder) / "t"
        checked(path, bytes(data), EXPECTED)
        with TensorFile(path) as file:
            assert all((file.read(name) == array).all() for name, array in model(0.5).items())


def test_a_tensor_with_a_hostile_name_is_shown_as_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidUpdateError, match="surplus") as caught:
        checked(tmp_path / "t", model(**{"../../x\x1b[31m": np.ones(1)}), EXPECTED)
    assert str(caught.value).isprintable()


def test_many_names_are_not_all_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidUpdateError, match="and 45 more") as caught:
        checked(tmp_path / "t", {f"t{i:03}": np.ones(1) for i in range(50)}, EXPECTED)
    assert len(str(caught.value)) < 500


def test_a_file_far_beyond_the_model_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with path.open("wb") as handle:
        handle.truncate(limits_for(EXPECTED.specs).file_bytes + 1)

    with pytest.raises(InvalidUpdateError, match="at most") as caught:
        check_tensors(path, EXPECTED)
    assert caught.value.reason == Reason.BAD_FORMAT


def test_the_limits_let_every_model_through_that_they_are_made_for(tmp_path: Path) -> None:
    """Also written at length: all of it escaped, with spaces, a long text in the metadata."""
    specs = tuple(TensorSpec(f"[{{,\xe9{i}" * 9, "U8", (1,) * 16) for i in range(300))
    header = {
        s.name: {"dtype": "U8", "shape": s.shape, "data_offsets": [i, i + 1]}
        for i, s in enumerate(specs)
    }
    text = json.dumps({"__metadata__": {"about": "x," * 10_000}, **header}, indent=1).encode()
    path = written(tmp_path / "t", len(text).to_bytes(8, "little") + text + bytes(300))

    with TensorFile(path, limits=limits_for(specs)) as file:
        assert set(file.specs) == set(specs)


def test_a_file_that_is_shortened_while_it_is_checked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is read before its values; a mapped file would end the process here."""
    path = written(tmp_path / "t", model())
    monkeypatch.setattr(validation, "_check_specs", lambda *_: os.truncate(path, 100))

    with pytest.raises(InvalidUpdateError) as caught:
        check_tensors(path, EXPECTED)

    assert caught.value.reason == Reason.BAD_FORMAT
