from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="makes the networks of these tests")

from onnx import helper, numpy_helper  # noqa: E402

from clma.encoders.onnx_file import PARTS, keeps_weights_elsewhere  # noqa: E402
from clma.errors import InvalidConfigError  # noqa: E402


def tensor(*, elsewhere: bool = True) -> Any:
    made = numpy_helper.from_array(np.ones((2, 300), np.float32), "w")
    if elsewhere:
        onnx.external_data_helper.set_external_data(made, "weights.bin")
        made.ClearField("raw_data")
    return made


def graph(*, initializer: Any = None, sparse: Any = None, attribute: Any = None) -> Any:
    node = helper.make_node("Op", ["x"], ["y"])
    if attribute is not None:
        node.attribute.append(attribute)
    return helper.make_graph(
        [node],
        "g",
        [],
        [],
        [] if initializer is None else [tensor(elsewhere=False), initializer],
        sparse_initializer=[] if sparse is None else [sparse],
    )


def sparse(**parts: Any) -> Any:
    made = onnx.SparseTensorProto(dims=[2])
    for name, value in parts.items():
        getattr(made, name).CopyFrom(value)
    return made


def function(attribute: Any) -> Any:
    node = helper.make_node("Op", ["x"], ["y"])
    node.attribute.append(attribute)
    return helper.make_function("d", "f", ["x"], ["y"], [node], [])


def attribute(value: Any) -> Any:
    return helper.make_attribute("a", value)


def placed(place: str, part: Any) -> Any:
    """Return a model that has a tensor at a place, however deep."""
    inner = graph(initializer=part)
    model = helper.make_model(
        {
            "initializer": inner,
            "sparse values": graph(sparse=sparse(values=part)),
            "sparse indices": graph(sparse=sparse(indices=part)),
            "constant": graph(attribute=attribute(part)),
            "constants": graph(attribute=attribute([part])),
            "branch": graph(attribute=attribute(inner)),
            "branch of a branch": graph(attribute=attribute([graph(attribute=attribute(inner))])),
        }.get(place, graph())
    )
    if place == "function":
        model.functions.append(function(attribute(part)))
    if place == "training":
        model.training_info.add().algorithm.CopyFrom(inner)
    return model


PLACES = [
    "initializer",
    "sparse values",
    "sparse indices",
    "constant",
    "constants",
    "branch",
    "branch of a branch",
    "function",
    "training",
]


@pytest.mark.parametrize("place", PLACES)
def test_tensor_of_another_file_is_found_wherever_it_is(place: str) -> None:
    assert keeps_weights_elsewhere(placed(place, tensor()).SerializeToString())


@pytest.mark.parametrize("place", PLACES)
def test_tensor_of_the_file_itself_is_none(place: str) -> None:
    assert not keeps_weights_elsewhere(placed(place, tensor(elsewhere=False)).SerializeToString())


@pytest.mark.parametrize("field", ["data_location", "external_data"])
def test_half_a_reference_is_one(field: str) -> None:
    part = tensor()
    part.ClearField(field)
    assert keeps_weights_elsewhere(placed("initializer", part).SerializeToString())


def test_every_way_to_a_tensor_is_walked() -> None:
    """The numbers are those of the format's own description."""
    messages = onnx.ModelProto.DESCRIPTOR.file.message_types_by_name
    leads, grew = {"TensorProto"}, True
    while grew:
        more = {
            name
            for name, message in messages.items()
            if any(f.message_type and f.message_type.name in leads for f in message.fields)
        }
        grew, leads = not more <= leads, leads | more

    wanted = {
        name: {
            f.number: f.message_type.name
            for f in messages[name].fields
            if f.message_type and f.message_type.name in leads
        }
        for name in leads
    }

    assert wanted == PARTS


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x3a\x05\x00", "a field of 5 bytes where 1 are left"),
        (b"\xff" * 12, "a number does not end"),
        (b"\x3a", "a number does not end"),
        (b"\x0b", "a field of wire type 3"),
        (b"\x09abc", "a field of 8 bytes where 3 are left"),
    ],
)
def test_bytes_of_another_format_are_refused(content: bytes, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"no ONNX file: {why}"):
        keeps_weights_elsewhere(content)


def test_every_cut_of_a_file_is_read_or_refused() -> None:
    model = placed("branch", tensor(elsewhere=False)).SerializeToString()
    for length in range(0, len(model), 7):
        with contextlib.suppress(InvalidConfigError):
            assert not keeps_weights_elsewhere(model[:length])
