"""Build a configuration: from a preset, with changes, from settings on the command line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from clma.config.presets import preset_settings
from clma.config.sections import FederationConfig
from clma.errors import InvalidConfigError

__all__ = ["changed_settings", "override_config", "preset_config", "validated"]


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "configuration"
    got = "" if first["type"] in {"missing", "value_error"} else f", got {first['input']!r}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}{got}{more}"


def validated(values: Mapping[str, Any]) -> FederationConfig:
    """Check settings; InvalidConfigError names the first key that is wrong."""
    try:
        return FederationConfig.model_validate(values)
    except ValidationError as error:
        raise InvalidConfigError(_explain(error)) from None


def preset_config(
    federation: str,
    preset: str = "clma",
    *,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> FederationConfig:
    """Build a configuration from a preset.

    Parameters
    ----------
    federation : str
        Its name.
    preset : str
        Key of `PRESETS`, or ``oracle`` together with ``cohorting.schedule`` in `settings`.
    overrides : sequence of str
        ``section.key=value`` as on the command line; the value is TOML, or a bare word.
    **settings
        Sections or top-level keys, merged over the preset.

    Raises
    ------
    InvalidConfigError
        If the preset is unknown or the result is not valid.
    """
    values: dict[str, Any] = {"federation": federation, "preset": preset}
    _merge(values, preset_settings(preset))
    _merge(values, settings)
    for text in overrides:
        _merge(values, _parse_override(text))
    return validated(values)


def override_config(config: FederationConfig, overrides: Sequence[str]) -> FederationConfig:
    """Return a configuration with some settings changed.

    Parameters
    ----------
    config : FederationConfig
    overrides : sequence of str
        ``section.key=value``, as `preset_config` takes them.

    Raises
    ------
    InvalidConfigError
        If a key is unknown or a value is out of range.
    """
    values = config.model_dump(mode="json")
    for text in overrides:
        _merge(values, _parse_override(text))
    return validated(values)


def changed_settings(
    before: FederationConfig, after: FederationConfig
) -> dict[str, tuple[str, str]]:
    """Return the settings that differ as ``section.key`` to the old and the new value, as JSON."""
    old, new = (_flat(config.model_dump(mode="json")) for config in (before, after))
    return {
        name: (old.get(name, "none"), new.get(name, "none"))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value)
    return flat


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and key != "model_arguments":
            # Copied before it is filled, so that a preset is never changed by its user.
            into[key] = dict(into.get(key, {}))
            _merge(into[key], value)
        else:
            into[key] = value


def _parse_override(text: str) -> dict[str, Any]:
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        raise InvalidConfigError(f"--set wants section.key=value, got {text!r}")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)
