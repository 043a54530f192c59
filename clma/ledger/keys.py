"""Where things lie in a federation folder, and which names may become part of a key.

A key is the only way from a name to a place. Its parts follow one strict pattern, so no name that
came from outside can leave the folder, hide in it, or mean two things on two file systems.

Examples
--------
>>> update_key(7, "plant-a", "update.json")
'inbox/round=000007/plant-a/update.json'
"""

from __future__ import annotations

import re

from clma.errors import UnknownClientError

__all__ = [
    "CHECKPOINTS_PREFIX",
    "CONFIGS_PREFIX",
    "CONFIG_KEY",
    "HEAD_KEY",
    "LEASES_PREFIX",
    "LEDGER_PREFIX",
    "SIGNATURES_PREFIX",
    "check_client_id",
    "check_key",
    "checkpoint_key",
    "checkpoint_number",
    "claim_key",
    "config_key",
    "entry_key",
    "inbox_prefix",
    "is_client_id",
    "is_tensors_of",
    "kept_signature_key",
    "kept_signatures_prefix",
    "lease_prefix",
    "onboarding_key",
    "printable",
    "request_key",
    "requests_prefix",
    "round_prefix",
    "sealed_key",
    "sealed_tensors_key",
    "signature_key",
    "signatures_of",
    "stage_key",
    "stages_prefix",
    "table_key",
    "update_key",
    "updates_prefix",
]

CHECKPOINTS_PREFIX = "checkpoints"
CONFIG_KEY = "federation.toml"
CONFIGS_PREFIX = "configs"
HEAD_KEY = "head.json"
LEASES_PREFIX = "leases"
LEDGER_PREFIX = "ledger"
SIGNATURES_PREFIX = "signatures"

# No part starts with a dot: that excludes '.', '..' and the drafts that a local disk stages.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,127}")
_CLIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CHECKPOINT = re.compile(rf"{CHECKPOINTS_PREFIX}/([0-9]{{8,}})-[0-9a-f]{{16}}\.json")
# Windows opens a device for these, with any extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def check_key(key: str) -> str:
    """Return `key` if every part of it is a plain name.

    Raises
    ------
    ValueError
        If it is empty, absolute, holds an empty part, ``..`` or another character.
    """
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise ValueError(
            f"{printable(key)!r} is not a key: wanted plain names with '/' between them"
        )
    return key


def is_client_id(text: str) -> bool:
    """Tell whether a text may be a client's id."""
    return (
        bool(_CLIENT_ID.fullmatch(text)) and not text.endswith(".") and not _DEVICE.fullmatch(text)
    )


def check_client_id(text: str) -> str:
    """Return `text` if it may be a client's id.

    Raises
    ------
    UnknownClientError
        If it may not; no such client can exist.
    """
    if not is_client_id(text):
        raise UnknownClientError(
            f"client id '{printable(text)}' is not allowed: wanted 1 to 64 of A-Z a-z 0-9 . _ -, "
            "a letter or digit first, no dot last, no device name"
        )
    return text


def printable(text: str, limit: int = 80) -> str:
    """Return text from outside as plain ASCII without control characters, cut at `limit`."""
    safe = text.encode("unicode_escape", "backslashreplace").decode("ascii")
    return safe if len(safe) <= limit else safe[: limit - 3] + "..."


def entry_key(number: int) -> str:
    """Return the key of a ledger entry."""
    return f"{LEDGER_PREFIX}/{number:08d}.json"


def checkpoint_key(number: int, digest: str) -> str:
    """Return the key of the state after an entry; two writers of one entry differ in the digest."""
    return f"{CHECKPOINTS_PREFIX}/{number:08d}-{digest[:16]}.json"


def checkpoint_number(key: str) -> int | None:
    """Return the number of a checkpoint's entry, or None if that is no checkpoint's key."""
    found = _CHECKPOINT.fullmatch(key)
    return int(found[1]) if found else None


def config_key(digest: str) -> str:
    """Return the key of a configuration."""
    return f"{CONFIGS_PREFIX}/{digest}.toml"


def inbox_prefix(round_num: int) -> str:
    """Return the folder in which clients drop their updates of a round."""
    return f"inbox/round={round_num:06d}"


def update_key(round_num: int, client_id: str, file_name: str) -> str:
    """Return the key of a file that a client drops."""
    return f"{inbox_prefix(round_num)}/{client_id}/{file_name}"


def signatures_of(client_id: str) -> str:
    """Return the folder in which a client drops signatures of its data."""
    return f"{SIGNATURES_PREFIX}/{client_id}"


def signature_key(client_id: str, digest: str, ending: str) -> str:
    """Return the key of a signature's message (``json``) or tensors (``safetensors``)."""
    return f"{signatures_of(client_id)}/{digest}.{ending}"


def requests_prefix(round_num: int) -> str:
    """Return the folder in which clients ask for a round to be closed early."""
    return f"requests/round={round_num:06d}"


def request_key(round_num: int, client_id: str, digest: str) -> str:
    """Return the key of a client's request; two that differ never meet."""
    return f"{requests_prefix(round_num)}/{client_id}/{digest[:16]}.json"


def lease_prefix(name: str) -> str:
    """Return the folder of a lease's claims."""
    return f"{LEASES_PREFIX}/{name}"


def claim_key(name: str, number: int) -> str:
    """Return the key of a lease's claim."""
    return f"{lease_prefix(name)}/{number:08d}.json"


def round_prefix(round_num: int) -> str:
    """Return the folder of what was recorded of a round."""
    return f"rounds/round={round_num:06d}"


def sealed_key(round_num: int, basis: int) -> str:
    """Return the key of a round's sealed inputs, judged by the ledger's first `basis` entries."""
    return f"{round_prefix(round_num)}/sealed-{basis:08d}.json"


def stages_prefix(round_num: int) -> str:
    """Return the folder of what the steps of a night hand to each other."""
    return f"{round_prefix(round_num)}/stages"


def stage_key(round_num: int, file_name: str) -> str:
    """Return the key of what a step of a night hands to the next."""
    return f"{stages_prefix(round_num)}/{file_name}"


def updates_prefix(round_num: int) -> str:
    """Return the folder of the tensors that a round accepted."""
    return f"{round_prefix(round_num)}/updates"


def sealed_tensors_key(round_num: int, client_id: str, digest: str) -> str:
    """Return where the server keeps tensors that it accepted, out of the client's reach."""
    return f"{updates_prefix(round_num)}/{client_id}.{digest[:16]}.safetensors"


def kept_signatures_prefix(round_num: int) -> str:
    """Return the folder of the signatures that placed clients before a round."""
    return f"{round_prefix(round_num)}/signatures"


def kept_signature_key(round_num: int, client_id: str, digest: str) -> str:
    """Return where the server keeps a signature that it used, out of the client's reach."""
    return f"{kept_signatures_prefix(round_num)}/{client_id}.{digest[:16]}.safetensors"


def onboarding_key(round_num: int, digest: str) -> str:
    """Return the key of the record of how a fleet's cohorts were formed, for the next round."""
    return f"{round_prefix(round_num)}/onboarding-{digest[:16]}.json"


def is_tensors_of(file_name: str, client_id: str) -> bool:
    """Tell whether a file of tensors that the server keeps is of a client."""
    return bool(re.fullmatch(rf"{re.escape(client_id)}\.[0-9a-f]{{16}}\.safetensors", file_name))


def table_key(round_num: int, name: str) -> str:
    """Return the key of one of a round's tables."""
    return f"{round_prefix(round_num)}/{name}.parquet"
