"""Ways to spoil ``update.json``, with tensors that are all right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzz.submission import Submission, canonical
from tests.fuzz.tensor_mutations import Rng, flipped, one_of

REQUIRED = (
    "schema",
    "federation",
    "client_id",
    "round",
    "base_digest",
    "n_examples",
    "drift_flag",
    "tensors_sha256",
    "created_at",
)

NEVER: tuple[Any, ...] = (
    None, [], {}, [1], {"a": 1}, "", "x" * 257, "\0", "\ud800", "\x1b[31m", "../../x", -1,
    -(10**30), 10**30, 0.5, 1e308, "NaN", "1" * 5000, [[[[1]]]], {"$ref": "x"},
)  # fmt: skip
"""Values that no field can have; a field may have one of them, so that is left out."""

ALLOWED: dict[str, tuple[Any, ...]] = {
    "n_examples": (),
    "loss": (-1, -(10**30), 10**30, 0.5, 1e308),
}
ALLOWED["software"] = ("", "\0", "\ud800", "\x1b[31m", "../../x", "NaN")
ALLOWED["signature"] = ALLOWED["software"]

FREE = re.compile(rb'"(n_examples|created_at|software)":("[^"]*"|[0-9]+)')
"""Parts that may hold something else without being wrong."""


def value(sent: Submission, rng: Rng) -> Submission:
    key = one_of(rng, *REQUIRED, "confirm", "loss", "software", "signature")
    allowed = ALLOWED.get(key, ())
    choices = [
        v for v in NEVER if not any(v is a or (v == a and type(v) is type(a)) for a in allowed)
    ]
    return sent.saying(**{key: one_of(rng, *choices)})


def wrong(sent: Submission, rng: Rng) -> Submission:
    """Well-formed, and not what the server expects."""
    fields = sent.fields
    changed = one_of(
        rng, {"round": 0}, {"round": 2}, {"round": 999_999_999}, {"round": 10**9}, {"round": True},
        {"base_digest": "ab" * 32}, {"base_digest": fields["base_digest"].upper()},
        {"base_digest": fields["base_digest"][:-1]}, {"base_digest": fields["base_digest"] + "\n"},
        {"tensors_sha256": fields["base_digest"]},
        {"tensors_sha256": fields["tensors_sha256"].upper()}, {"tensors_sha256": "../" * 21 + "x"},
        {"client_id": "honest-0"}, {"client_id": "../honest-0"},
        {"client_id": fields["client_id"].upper()}, {"client_id": fields["client_id"] + "\0"},
        {"client_id": "con"}, {"client_id": ".."}, {"client_id": ""}, {"client_id": "a\nb"},
        {"federation": "other"}, {"federation": fields["federation"].upper()},
        {"federation": fields["federation"] + "\u200b"}, {"schema": 2}, {"schema": 0},
        {"schema": "1"}, {"schema": 1.0}, {"schema": True}, {"n_examples": 10**12 + 1},
        {"n_examples": 1.0}, {"n_examples": True}, {"n_examples": "100"}, {"drift_flag": 0},
        {"drift_flag": "false"}, {"created_at": "yesterday"}, {"created_at": "2026-01-05T21:00:00"},
        {"created_at": "2026-01-05"}, {"created_at": "9999-99-99T99:99:99Z"},
        {"created_at": 1767646800}, {"confirm": 1}, {"loss": "0.5"}, {"loss": True},
        {"loss": 10**400},
    )  # fmt: skip
    return sent.saying(**changed)


def lost_key(sent: Submission, rng: Rng) -> Submission:
    lost = one_of(rng, *REQUIRED)
    return replace(sent, fields={k: v for k, v in sent.fields.items() if k != lost})


def extra_key(sent: Submission, rng: Rng) -> Submission:
    key = one_of(
        rng,
        "",
        "extra",
        "\x1b[31m",
        "Round",
        "round ",
        "__class__",
        "x" * 10_000,
        "\ud800",
        "weights",
    )
    return sent.saying(**{key: one_of(rng, None, 1, "x", [], {})})


def twice(sent: Submission, rng: Rng) -> Submission:
    key = one_of(rng, *REQUIRED)
    second = json.dumps({key: one_of(rng, sent.fields[key], 1, "x", None)})[1:]
    return replace(sent, text=sent.message()[:-1] + b"," + second.encode())


def numbers(sent: Submission, rng: Rng) -> Submission:
    """Numbers that JSON or Python knows and a whole number is not."""
    number = one_of(
        rng, "NaN", "Infinity", "-Infinity", "1e999", "1e0", "01", "+1", "0x1", "1_0", "1.", ".5",
        "1" * 5000, "-1", "1e-400", "\uff11", "1" * 60_000,
    )  # fmt: skip
    key = one_of(rng, "round", "n_examples", "schema")
    text = re.sub(rf'"{key}":[0-9]+', f'"{key}":{number}', sent.message().decode())
    return replace(sent, text=text.encode())


def whole(sent: Submission, rng: Rng) -> Submission:
    """The file as a whole is no JSON object, or too long, or in another encoding."""
    good = sent.message()
    text = one_of(
        rng, b"", b"{", b"[]", b"null", b"1", b'"x"', b"\0", good[:-1], good[: len(good) // 2],
        good * 2, good + b"x", b"[" + good + b"]", b"\xef\xbb\xbf" + good,
        good.decode().encode("utf-16"), b"\xff" + good, good + b" " * 70_000, b"[" * 60_000,
        b'{"a":' * 12_000, b'"' * 60_000, rng.bytes(300), good.replace(b'"', b"'"),
        good.replace(b"{", b"{,"), b"/*x*/" + good, good.replace(b":", b"="),
    )  # fmt: skip
    return replace(sent, text=text)


def bits(sent: Submission, rng: Rng) -> Submission:
    """One byte is another, but not inside a value that may be anything."""
    good = sent.message()
    free = {i for found in FREE.finditer(good) for i in range(*found.span(2))}
    position = one_of(rng, *(i for i in range(len(good)) if i not in free))
    return replace(sent, text=flipped(good, rng, position, position + 1))


def cut(sent: Submission, rng: Rng) -> Submission:
    good = sent.message()
    return replace(sent, text=good[: int(rng.integers(len(good)))])


def same_otherwise(sent: Submission, rng: Rng) -> Submission:
    """The same said with other spaces, another order, escapes; or later, by another program."""
    keys = rng.permutation(list(sent.fields)).tolist()
    fields = {key: sent.fields[key] for key in keys}
    text = json.dumps(fields, indent=one_of(rng, None, 1, "\t")).encode()
    escaped = text.replace(b"fuzzed", b"\\u0066uzzed")
    noted = canonical({**fields, "software": "\x1b[31m", "created_at": "2026-01-05T22:00:00Z"})
    return replace(sent, text=one_of(rng, text, escaped, text + b"\n\n ", noted), accepted=True)


MESSAGE_MUTATIONS: dict[str, Callable[[Submission, Rng], Submission]] = {
    "message/value": value,
    "message/wrong": wrong,
    "message/lost-key": lost_key,
    "message/extra-key": extra_key,
    "message/twice": twice,
    "message/numbers": numbers,
    "message/whole": whole,
    "message/bits": bits,
    "message/cut": cut,
    "message/same-otherwise": same_otherwise,
}
