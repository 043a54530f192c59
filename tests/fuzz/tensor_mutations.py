"""Ways to spoil the bytes of ``update.safetensors``; where not said, the message names them all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.fuzz.submission import SPECS, Submission, tensors_of

Rng = np.random.Generator
Header = dict[str, Any]

FLOATS = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}
NOT_FINITE = {
    "F32": (0x7FC00000, 0x7F800000, 0xFF800000, 0x7F800001),
    "F16": (0x7E00, 0x7C00, 0xFC00, 0x7C01),
    "BF16": (0x7FC0, 0x7F80, 0xFF80, 0x7F81),
    "F64": (0x7FF8 << 48, 0x7FF0 << 48, 0xFFF0 << 48, (0x7FF0 << 48) + 1, 0x7FEF << 48),
}
"""NaN, both infinities, a signalling NaN; and one that is finite, but not when it is squared."""


def split(data: bytes) -> tuple[Header, bytes]:
    """Return the header and what follows it."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: Header | bytes, body: bytes) -> bytes:
    """Return a file of a header, written as it is by the product, and a body."""
    text = header if isinstance(header, bytes) else dumped(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def dumped(header: Header) -> bytes:
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def flipped(data: bytes, rng: Rng, start: int, stop: int, n: int = 1) -> bytes:
    """Return bytes with other bits in `n` places of a part."""
    result = bytearray(data)
    for position in rng.choice(stop - start, size=min(n, stop - start), replace=False):
        result[start + int(position)] ^= int(rng.integers(1, 256))
    return bytes(result)


def header_stop(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def unnamed_flip(sent: Submission, rng: Rng) -> Submission:
    size = len(sent.tensors)
    return replace(sent, tensors=flipped(sent.tensors, rng, 0, size, int(rng.integers(1, 9))))


def unnamed_cut(sent: Submission, rng: Rng) -> Submission:
    return replace(sent, tensors=sent.tensors[: int(rng.integers(0, len(sent.tensors)))])


def unnamed_more(sent: Submission, rng: Rng) -> Submission:
    return replace(sent, tensors=sent.tensors + rng.bytes(int(rng.integers(1, 5000))))


def unnamed_other(sent: Submission, rng: Rng) -> Submission:
    return replace(sent, tensors=tensors_of(rng))


def cut(sent: Submission, rng: Rng) -> Submission:
    return sent.naming(sent.tensors[: int(rng.integers(0, len(sent.tensors)))])


def more(sent: Submission, rng: Rng) -> Submission:
    return sent.naming(sent.tensors + rng.bytes(int(rng.integers(1, 5000))))


def noise(sent: Submission, rng: Rng) -> Submission:
    return sent.naming(rng.bytes(int(rng.integers(0, 3000))))


def header_bits(sent: Submission, rng: Rng) -> Submission:
    stop = header_stop(sent.tensors)
    return sent.naming(flipped(sent.tensors, rng, 0, stop, int(rng.integers(1, 12))))


def header_length(sent: Submission, rng: Rng) -> Submission:
    right = header_stop(sent.tensors) - 8
    wrong = [
        right + int(rng.integers(1, 200)),
        right - int(rng.integers(1, 200)),
        0,
        1,
        len(sent.tensors),
    ]
    wrong += [2**63, 2**64 - 1, 100 * 2**20, int(rng.integers(0, 2**62))]
    length = wrong[int(rng.integers(len(wrong)))]
    return sent.naming(length.to_bytes(8, "little") + sent.tensors[8:])


def not_finite(sent: Submission, rng: Rng) -> Submission:
    header, body = split(sent.tensors)
    entries = [e for e in header.values() if e["dtype"] in FLOATS and 0 not in e["shape"]]
    entry = entries[int(rng.integers(len(entries)))]
    width, (start, stop) = FLOATS[entry["dtype"]], entry["data_offsets"]
    place = start + width * int(rng.integers((stop - start) // width))
    value = one_of(rng, *NOT_FINITE[entry["dtype"]]).to_bytes(width, "little")
    return sent.naming(joined(header, body[:place] + value + body[place + width :]))


def edit_of(
    change: Callable[[Header, str, Rng], object],
) -> Callable[[Submission, Rng], Submission]:
    """Return a mutation that changes the entry of one tensor that has values."""

    def mutate(sent: Submission, rng: Rng) -> Submission:
        header, body = split(sent.tensors)
        names = [n for n in header if 0 not in header[n]["shape"]]
        change(header, names[int(rng.integers(len(names)))], rng)
        return sent.naming(joined(header, body))

    return mutate


def one_of(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def dtype(header: Header, name: str, rng: Rng) -> None:
    known = [
        "F32",
        "F16",
        "BF16",
        "F64",
        "I64",
        "U64",
        "I32",
        "U32",
        "I16",
        "U16",
        "I8",
        "U8",
        "BOOL",
    ]
    strange = ["F8_E4M3", "F8_E5M2", "C64", "F4", "f32", "", "F32 ", "object", "\x1b[31m", None, 1]
    strange += [["F32"], {"F32": 1}]
    header[name]["dtype"] = one_of(rng, *(d for d in known + strange if d != header[name]["dtype"]))


def shape(header: Header, name: str, rng: Rng) -> None:
    right = header[name]["shape"]
    header[name]["shape"] = one_of(
        rng, [*right, 1], [1, *right], [*right, 0], [*right, -1], [*right, 1.0], [*right, True],
        [*right, "1"], [*right, None], [*right, 2**62], [2**32, 2**32], [1] * 17, [-1, -1], "6", 6,
        None, {}, [right], [*right, 10**400], [int(np.prod(right)), *[1] * 3],
    )  # fmt: skip


def offsets(header: Header, name: str, rng: Rng) -> None:
    start, stop = header[name]["data_offsets"]
    by = int(rng.integers(1, 20))
    header[name]["data_offsets"] = one_of(
        rng, [start + by, stop + by], [start - by, stop - by], [start, stop + by],
        [start + 1, stop], [stop, start], [start, stop, stop], [start], [], [float(start), stop],
        [start, str(stop)], [2**63, 2**63 + stop - start], [-(2**70), 2**70], [True, stop], None,
        "0,1", start, [start + 2**48, stop + 2**48], [10**30, 10**30 + stop - start],
    )  # fmt: skip


def rename(header: Header, name: str, rng: Rng) -> None:
    choices = (
        "../../x", "/etc/passwd", "", name + "\0", "\0", name + "\n", "\x1b[31m" + name,
        "module." + name, name.upper(), name + " ", "\ufeff" + name, name.replace("e", "e\u0301"),
        name.replace("o", "\u043e"), "\ud800", name + "\udfff", "x" * 512, "x" * 513, "x" * 5000,
        "=cmd()", "<script>", "\u202e" + name, "__proto__", "%s%n", "{0.__class__}", "con",
        "\U0001f600" * 100,
    )  # fmt: skip
    header[one_of(rng, *(new for new in choices if new != name))] = header.pop(name)


def rename_all(header: Header, name: str, rng: Rng) -> None:
    prefix = one_of(rng, "module.", "_orig_mod.", "../", "model\0.")
    for old in list(header):
        header[prefix + old] = header.pop(old)


def lose(header: Header, name: str, rng: Rng) -> None:
    del header[name]


def keys(header: Header, name: str, rng: Rng) -> None:
    entry = header[name]
    if rng.random() < 0.5:
        del entry[one_of(rng, *entry)]
    else:
        entry[one_of(rng, "strides", "", "\0", "dtype ")] = 1


def no_entry(header: Header, name: str, rng: Rng) -> None:
    header[name] = one_of(
        rng, None, [], {}, "F32", 1, [1, 2, 3], ["dtype", "shape", "data_offsets"]
    )


def metadata(header: Header, name: str, rng: Rng) -> None:
    header["__metadata__"] = one_of(
        rng, [], 1, "x", {"a": 1}, {"a": None}, {"a": {"b": "c"}}, {"a": 10**400}, {"a": []}
    )


def other_shape(sent: Submission, rng: Rng) -> Submission:
    """A well-formed file with one tensor more, less or in another shape."""
    header, body = split(sent.tensors)
    name = one_of(rng, *(s.name for s in SPECS if len(s.shape) == 2))
    kind = int(rng.integers(3))
    if kind == 0:
        header[name]["shape"] = header[name]["shape"][::-1]
    elif kind == 1:
        header[name]["shape"] = [int(np.prod(header[name]["shape"]))]
    else:
        extra = int(rng.integers(0, 50))
        header["surplus"] = {
            "dtype": "U8",
            "shape": [extra],
            "data_offsets": [len(body), len(body) + extra],
        }
        body += bytes(extra)
    return sent.naming(joined(header, body))


def same_otherwise(sent: Submission, rng: Rng) -> Submission:
    header, body = split(sent.tensors)
    shuffled = {name: header[name] for name in rng.permutation(list(header)).tolist()}
    if rng.random() < 0.5:
        shuffled["__metadata__"] = {"format": "pt", "about": "x" * int(rng.integers(0, 5000))}
    text = json.dumps(shuffled, indent=one_of(rng, None, 1, 4)).encode()
    return replace(sent.naming(joined(text, body)), accepted=True)


TENSOR_MUTATIONS: dict[str, Callable[[Submission, Rng], Submission]] = {
    "tensors/unnamed-flip": unnamed_flip,
    "tensors/unnamed-cut": unnamed_cut,
    "tensors/unnamed-more": unnamed_more,
    "tensors/unnamed-other": unnamed_other,
    "tensors/cut": cut,
    "tensors/more": more,
    "tensors/noise": noise,
    "tensors/header-bits": header_bits,
    "tensors/header-length": header_length,
    "tensors/not-finite": not_finite,
    "tensors/dtype": edit_of(dtype),
    "tensors/shape": edit_of(shape),
    "tensors/offsets": edit_of(offsets),
    "tensors/rename": edit_of(rename),
    "tensors/rename-all": edit_of(rename_all),
    "tensors/lose": edit_of(lose),
    "tensors/keys": edit_of(keys),
    "tensors/no-entry": edit_of(no_entry),
    "tensors/metadata": edit_of(metadata),
    "tensors/other-shape": other_shape,
    "tensors/same-otherwise": same_otherwise,
}
