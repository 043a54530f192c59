"""``federation.toml`` as pydantic models: every setting, its default, its range.

A preset is a named set of the same settings (`PRESETS`), so ``clma init --preset clma-literal``
writes a file in which every choice can be read and changed.

Examples
--------
>>> config = preset_config("north-sea", "clma")
>>> config.cohorting.recall_threshold
0.4
"""

from __future__ import annotations

from clma.config.building import changed_settings, override_config, preset_config
from clma.config.presets import PRESETS, requirements
from clma.config.sections import (
    AggregationConfig,
    ChoiceRule,
    ClientConfig,
    CohortingConfig,
    DriftConfig,
    FederationConfig,
    GivenCohorts,
    IdentityConfig,
    ModelAdapter,
    OnboardingConfig,
    PrivacyConfig,
    RoundConfig,
)
from clma.config.text import config_digest, parse_config, render_config

__all__ = [
    "PRESETS",
    "AggregationConfig",
    "ChoiceRule",
    "ClientConfig",
    "CohortingConfig",
    "DriftConfig",
    "FederationConfig",
    "GivenCohorts",
    "IdentityConfig",
    "ModelAdapter",
    "OnboardingConfig",
    "PrivacyConfig",
    "RoundConfig",
    "changed_settings",
    "config_digest",
    "override_config",
    "parse_config",
    "preset_config",
    "render_config",
    "requirements",
]
