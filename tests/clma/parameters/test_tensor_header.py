from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from clma.parameters.tensor_header import (
    NUMPY_DTYPES,
    TensorFileError,
    TensorLimits,
    parse_header,
    render_header,
    tensor_bytes,
)
from clma.records import TensorSpec

LIMITS = TensorLimits()
ENTRY = '{"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}'

specs = st.lists(
    st.builds(
        TensorSpec,
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
        st.sampled_from(sorted(NUMPY_DTYPES)),
        st.lists(st.integers(0, 5), max_size=3).map(tuple),
    ),
    max_size=5,
    unique_by=lambda spec: spec.name,
)


def read(text: str | bytes, n_bytes: int = 1, limits: TensorLimits = LIMITS) -> Any:
    data = text if isinstance(text, bytes) else text.encode()
    return parse_header(data, body_bytes=n_bytes, limits=limits)


@given(specs)
def test_what_is_written_is_read(written: list[TensorSpec]) -> None:
    entries = read(render_header(written), sum(map(tensor_bytes, written)))
    assert [e.spec for e in entries.values()] == sorted(written, key=lambda s: s.name)


@given(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "U8", "BF16", "f32", "", "F8_E4M3"]),
            "shape": st.just([1]) | st.lists(st.integers(-1, 3), max_size=3),
            "data_offsets": st.just([0, 4]) | st.lists(st.integers(-1, 8), min_size=1, max_size=3),
        },
        optional={"more": st.none()},
    ),
    st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers()),
    st.just(4) | st.integers(0, 8),
)
def test_what_is_read_is_also_read_by_the_library(
    entry: dict[str, Any], metadata: Any, n_bytes: int
) -> None:
    header = {"w": entry} if metadata is None else {"w": entry, "__metadata__": metadata}
    text = json.dumps(header).encode()
    try:
        (found,) = read(text, n_bytes).values()
    except TensorFileError:
        return

    ((name, theirs),) = safetensors.deserialize(
        len(text).to_bytes(8, "little") + text + bytes(n_bytes)
    )

    assert (name, theirs["dtype"], tuple(theirs["shape"])) == (
        found.spec.name,
        found.spec.dtype,
        found.spec.shape,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f' {{"w": {ENTRY}}}', "does not begin"),
        (
            '{"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1' + "0" * 10**5,
            "100001 digits",
        ),
        (f'{{"w": {ENTRY}}}'.replace("[1]", "[1.0]"), "holds 1.0, which is no size"),
        (f'{{"w": {ENTRY}}}'.replace("[1]", "[NaN]"), "holds NaN"),
        (f'{{"w": {ENTRY}}}'.replace("[1]", "[1e99]"), "holds 1e99"),
        (f'{{"w": {ENTRY}, "__metadata__": {{"a": 1}}}}', "not an object of texts"),
        (f'{{"w": {ENTRY}, "__metadata__": []}}', "not an object of texts"),
        (f'{{"\\ud800": {ENTRY}}}', "cannot be written"),
        ('{"w": {"dtype": ' + "[" * 300 + "]" * 300, "JSON"),
        (f'{{"w": {ENTRY}}}'.replace('"U8"', "[" * 300 + "]" * 300), "dtype is no text"),
        ('{"w":' * 5000, "RecursionError"),
    ],
)
def test_hostile_json_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(TensorFileError, match=message):
        read(text)


@pytest.mark.parametrize("value", ["[]", "{}", '{"a":1}', "1", '"a"', '{"":[]}'])
def test_the_number_of_values_is_limited_before_they_are_made(value: str) -> None:
    """Each of a million empty lists costs 60 bytes; brackets and commas are counted for nothing."""
    with pytest.raises(TensorFileError, match=r"values, at most 1000 are read"):
        read("{" + f'"w":[{",".join([value] * 1001)}', limits=TensorLimits(header_marks=1000))


def test_texts_of_metadata_are_nobodys_business() -> None:
    (entry,) = read(f'{{"w": {ENTRY}, "__metadata__": {{"format": "pt", "x": "[NaN]"}}}}').values()
    assert entry.spec == TensorSpec("w", "U8", (1,))


@pytest.mark.parametrize("value", ["[]", '{"a":1}', '{"":[]}', '"a%06d"', '{"a":"%06d"}'])
def test_a_counted_mark_costs_as_little_memory_as_the_limits_assume(value: str) -> None:
    values = [value % i if "%" in value else value for i in range(10_000)]
    text = f'{{"w":[{",".join(values)}]}}'
    n_marks = sum(map(text.count, "[{,"))

    tracemalloc.start()
    with pytest.raises(TensorFileError, match="wanted dtype"):
        read(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 150 * n_marks + 3 * len(text)
