"""``federation.toml``: reading, writing, and the digest by which a configuration is known."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from typing import Any

from clma.config.building import validated
from clma.config.sections import FederationConfig
from clma.errors import InvalidConfigError

__all__ = ["config_digest", "parse_config", "render_config"]


def parse_config(text: str) -> FederationConfig:
    """Read the text of a ``federation.toml``.

    Raises
    ------
    InvalidConfigError
        If it is not TOML, or a key is unknown, missing or out of range; names the key.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfigError(f"federation.toml is not valid TOML: {error}") from None
    return validated(values)


_SECTIONS = (
    *("round", "drift", "cohorting", "onboarding", "aggregation", "client", "privacy", "identity"),
    "model_arguments",
)


def render_config(config: FederationConfig) -> str:
    """Write a configuration as TOML text that `parse_config` reads back to an equal one."""
    values = config.model_dump(mode="json")
    lines = _render_keys({k: v for k, v in values.items() if not isinstance(v, dict)})
    for section in _SECTIONS:
        body = dict(values[section])
        schedule = body.pop("schedule", None)
        if body:
            lines += ["", f"[{section}]", *_render_keys(body)]
        for entry in schedule or ():
            lines += ["", "[[cohorting.schedule]]", f"from_round = {entry['from_round']}"]
            lines += ["", "[cohorting.schedule.labels]", *_render_keys(entry["labels"])]
    return "\n".join(lines) + "\n"


def _render_keys(values: Mapping[str, Any]) -> list[str]:
    # TOML strings, numbers, booleans and arrays of strings are written as JSON writes them; keys
    # are quoted, since client ids may hold dots.
    return [
        f"{key if key.replace('_', '').isalnum() else json.dumps(key)} = {json.dumps(value)}"
        for key, value in values.items()
    ]


def config_digest(config: FederationConfig) -> str:
    """Return the SHA-256 over the canonical JSON of a configuration."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
