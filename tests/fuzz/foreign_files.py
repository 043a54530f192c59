"""Files that are no update at all: other formats, bombs, and headers made to be dear."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.submission import SPECS, Submission
from tests.fuzz.tensor_mutations import Rng, dumped, joined, one_of, split

MARKER = "unpickled"
"""A file of this name in the working directory means that something was executed."""

_SIZE = 2**20


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(MARKER),)


def pickled(rng: Rng) -> bytes:
    return pickle.dumps({"w": Bomb()}, protocol=int(rng.integers(0, 6)))


def torch_archive(rng: Rng) -> bytes:
    """The layout that torch.save writes: a zip with a pickle in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(rng))
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def numpy_objects(rng: Rng) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def numpy_archive(rng: Rng) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([Bomb()], dtype=object))
    return buffer.getvalue()


def tar(rng: Rng) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("../../../escaped")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"here"))
    return buffer.getvalue()


def zip_of_zeros(rng: Rng) -> bytes:
    return gzip.compress(bytes(_SIZE))


def foreign(make: Callable[[Rng], bytes]) -> Callable[[Submission, Rng], Submission]:
    """Return a mutation that sends other bytes, half of the time in a safetensors envelope."""

    def mutate(sent: Submission, rng: Rng) -> Submission:
        data = make(rng)
        wrapped = one_of(rng, data, joined(data, b""), joined(split(sent.tensors)[0], data))
        return sent.naming(wrapped)

    return mutate


def repeated(first: str, piece: str, last: str) -> Callable[[Submission, Rng], Submission]:
    """Return a mutation whose header is one thing many times, around the limits."""

    def mutate(sent: Submission, rng: Rng) -> Submission:
        # Mostly small: what is beyond the limits costs the disk more than the gate.
        size = one_of(rng, 1000, 20_000, 50_000, 100_000, 200_000, 400_000, _SIZE, 2 * _SIZE)
        text = first + piece * (size // len(piece)) + last
        body = split(sent.tensors)[1]
        return sent.naming(joined(text.encode(), body))

    return mutate


def many_tensors(sent: Submission, rng: Rng) -> Submission:
    header, body = split(sent.tensors)
    empty = {"dtype": "U8", "shape": [0], "data_offsets": [len(body), len(body)]}
    header |= {f"t{i}": empty for i in range(one_of(rng, 1, 900, 3000, 8000))}
    return sent.naming(joined(header, body))


def twice(sent: Submission, rng: Rng) -> Submission:
    """One tensor is named twice, with the same or another place."""
    header, body = split(sent.tensors)
    name = one_of(rng, *(s.name for s in SPECS))
    second = {**header[name], "data_offsets": one_of(rng, header[name]["data_offsets"], [0, 0])}
    text = dumped(header)[:-1] + b"," + dumped({name: second})[1:]
    return sent.naming(joined(text, body))


def other_encoding(sent: Submission, rng: Rng) -> Submission:
    header, body = split(sent.tensors)
    text = dumped(header).decode().encode(one_of(rng, "utf-16", "utf-32", "utf-8-sig", "utf-7"))
    text = text if text != dumped(header) else b"\xff" + text
    return sent.naming(joined(text, body))


def sparse(sent: Submission, rng: Rng) -> Submission:
    """A file of a terabyte that takes no room on the disk."""
    size = one_of(rng, 2**40, 17 * _SIZE, 2**33)

    def place(sent: Submission, inbox: Path) -> None:
        replace(sent, place=None).write(inbox)
        with (inbox / sent.client_id / "update.safetensors").open("r+b") as file:
            file.truncate(size)

    return replace(sent, place=place)


FOREIGN_FILES: dict[str, Callable[[Submission, Rng], Submission]] = {
    "foreign/pickle": foreign(pickled),
    "foreign/torch": foreign(torch_archive),
    "foreign/npy": foreign(numpy_objects),
    "foreign/npz": foreign(numpy_archive),
    "foreign/tar": foreign(tar),
    "foreign/gzip": foreign(zip_of_zeros),
    "foreign/empty": foreign(lambda rng: b""),
    "foreign/lists": repeated('{"w":[', "[],", "0]}"),
    "foreign/objects": repeated('{"w":[', '{"a":1},', "0]}"),
    "foreign/deep": repeated("", '{"a":', ""),
    "foreign/digits": repeated('{"w":', "1", "}"),
    "foreign/fraction": repeated('{"w":0.', "1", "}"),
    "foreign/texts": repeated('{"w":[', '"ab",', "0]}"),
    "foreign/long-name": repeated('{"', "\U0001f600", '":1}'),
    "foreign/escapes": repeated('{"', "\\u00e9", '":1}'),
    "foreign/metadata": repeated('{"__metadata__":{"a":"', "x", '"}}'),
    "foreign/constants": repeated('{"w":[', "NaN,", "Infinity]}"),
    "foreign/spaces": repeated("{", " ", "}"),
    "foreign/many-tensors": many_tensors,
    "foreign/twice": twice,
    "foreign/encoding": other_encoding,
    "foreign/sparse": sparse,
}
