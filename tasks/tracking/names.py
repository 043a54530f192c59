"""Names in MLflow, one place for all: experiments, runs, registered models, tags.

Examples
--------
>>> registered_model_name("north-sea", "c2")
'north-sea.c2'
>>> split_model_name("north-sea.c2")
('north-sea', 'c2')
"""

from __future__ import annotations

import re

from clma.errors import InvalidConfigError

__all__ = [
    "CHAMPION",
    "TAG_CELL",
    "TAG_COHORT",
    "TAG_DIGEST",
    "TAG_FEDERATION",
    "TAG_FORGOTTEN",
    "TAG_GATE",
    "TAG_IDENTITY",
    "TAG_KEY",
    "TAG_METHOD",
    "TAG_NOT_FINITE",
    "TAG_PREFECT_RUN",
    "TAG_PREFECT_URL",
    "TAG_PUBLISHED",
    "TAG_ROUND",
    "TAG_SCENARIO",
    "TAG_SEED",
    "registered_model_name",
    "round_key",
    "split_model_name",
]

CHAMPION = "champion"
"""Alias of the version that a cohort's members are served."""

TAG_FORGOTTEN = "clma.forgotten"
"""Of an experiment: number of the newest ledger entry that forgot a client and was carried over."""

TAG_KEY = "clma.round_key"
TAG_FEDERATION = "clma.federation"
TAG_IDENTITY = "clma.federation_identity"
TAG_ROUND = "clma.round"
TAG_COHORT = "clma.cohort"
TAG_DIGEST = "clma.model_digest"
TAG_GATE = "clma.gate"
TAG_PREFECT_RUN = "clma.prefect_run_id"
TAG_PREFECT_URL = "clma.prefect_url"
TAG_NOT_FINITE = "clma.not_finite"
TAG_CELL = "clma.cell"
"""Of a comparison's run: the identity of its cell."""
TAG_SCENARIO = "scenario"
TAG_METHOD = "method"
TAG_SEED = "seed"
TAG_PUBLISHED = "clma.published"
"""Set last: everything of the run is there."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def round_key(federation: str, round_num: int, cohort_id: str | None = None) -> str:
    """Return what a run is found by: ``federation/round`` or ``federation/round/cohort``."""
    parts = [federation, str(round_num), *([] if cohort_id is None else [cohort_id])]
    return "/".join(parts)


def registered_model_name(federation: str, cohort_id: str) -> str:
    """Return the name of a cohort's model in the registry, ``<federation>.<cohort>``.

    Parameters
    ----------
    federation, cohort_id : str
        Characters that MLflow refuses (``/``, ``:``) or that would be ambiguous are written as
        ``=`` and the hexadecimal digits of their UTF-8 bytes; `split_model_name` reads them back.

    Raises
    ------
    InvalidConfigError
        If one of the two is empty.
    """
    if not federation or not cohort_id:
        raise InvalidConfigError(f"model of {federation!r}, {cohort_id!r}: wanted two names")
    # The last dot divides, so a cohort must not bring one.
    return f"{_escape(federation)}.{_escape(cohort_id).replace('.', '=2E')}"


def split_model_name(name: str) -> tuple[str, str]:
    """Return federation and cohort of a registered model's name.

    Raises
    ------
    InvalidConfigError
        If `registered_model_name` does not make such names.
    """
    federation, dot, cohort_id = name.rpartition(".")
    try:
        parts = (_unescape(federation), _unescape(cohort_id))
    except UnicodeDecodeError:
        parts = ("", "")
    if not dot or not all(parts) or registered_model_name(*parts) != name:
        raise InvalidConfigError(f"registered model {name!r}: wanted <federation>.<cohort>")
    return parts


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda m: "".join(f"={b:02X}" for b in m[0].encode()), text)


def _unescape(text: str) -> str:
    data = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), text.encode())
    return data.decode()
