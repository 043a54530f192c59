"""Does an ONNX file hold all of its weights? Read off the file, before any runtime opens it.

A tensor may say that its values lie in another file. Releases of the runtime differ in where they
look for it and whether they refuse; some read any file of the machine. An encoder's identity is the
digest of one file, so none is followed here.

Format: Protocol Buffers, "Encoding"; field numbers are those of ``onnx.proto``, IR version 13. Only
the messages that lead to a tensor are walked, values are skipped unread.

Examples
--------
>>> keeps_weights_elsewhere(bytes([0x3A, 6, 0x2A, 4, 0x70, 1, 0x78, 0]))
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clma.errors import InvalidConfigError

__all__ = ["PARTS", "keeps_weights_elsewhere"]

PARTS: Mapping[str, Mapping[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
"""By message and field number, the messages that hold tensors or lead to some."""

_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


def keeps_weights_elsewhere(model: bytes) -> bool:
    """Say whether any tensor of a model has its values in another file.

    Parameters
    ----------
    model : bytes
        Of an ONNX file.

    Raises
    ------
    InvalidConfigError
        If the bytes are no message of this format.
    """
    waiting = [("ModelProto", memoryview(model))]
    while waiting:
        kind, message = waiting.pop()
        for number, value in _fields(message):
            if kind == "TensorProto" and (
                number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)
            ):
                return True
            part = PARTS[kind].get(number)
            if part is not None and isinstance(value, memoryview):
                waiting.append((part, value))
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield field numbers with whole numbers as such and the rest as bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(message, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise InvalidConfigError(f"no ONNX file: a field of wire type {wire_type}")
        if length > len(message) - position:
            raise InvalidConfigError(
                f"no ONNX file: a field of {length} bytes where {len(message) - position} are left"
            )
        yield key >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, position + shift + 1
    raise InvalidConfigError("no ONNX file: a number does not end")
