"""The strategy's options: Flower's are passed on, those of fed-clma told their successor.

Examples
--------
>>> fedavg_options({"fraction_train": 0.5, "param_selector": None})
{'fraction_train': 0.5}
>>> config_of("north", "clma", ["round.quorum=2"]).round.quorum
2
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.serverapp.strategy import FedAvg

from clma.config import FederationConfig, preset_config
from clma.errors import InvalidConfigError
from clma.methods import required
from clma.parameters.selectors import layer_of

__all__ = ["check_settings", "config_of", "fedavg_options", "with_layer_order"]

_SENT = frozenset({"weights", "flag", "examples", "loss"})
"""What this adapter's messages carry, of what ``privacy.share`` may name."""

_SUCCESSORS = {
    "cohorter": "name a method instead: preset='clma', or preset='clma-package' for fed-clma's own",
    "param_selector": (
        "name one instead: settings=['cohorting.selector=last_layers'] (default, all, name_filter)"
    ),
    "merge_cohorts_threshold": (
        "cohorts that go the same way merge by themselves: "
        "settings=['cohorting.merge=true', 'cohorting.merge_cosine=0.5']"
    ),
}


def config_of(federation: str, preset: str, settings: Sequence[str]) -> FederationConfig:
    """Return the settings of a new federation.

    Parameters
    ----------
    federation : str
    preset : str
    settings : sequence of str
        ``section.key=value``.

    Raises
    ------
    InvalidConfigError
        If a setting is not valid, or the method needs more than Flower's messages carry here.
    """
    # Flower authenticates its nodes itself, and gives them no way to sign what they answer.
    unsigned = {"updates": "unsigned"}
    config = preset_config(federation, preset, overrides=settings, identity=unsigned)
    check_settings(config)
    return config


def check_settings(config: FederationConfig) -> None:
    """Refuse settings that ask for more than this adapter's messages carry.

    Raises
    ------
    InvalidConfigError
        One line with what is missing.
    """
    cohorting = config.cohorting
    asked = required(cohorting.method, cohorting.choice, config.onboarding.method) - _SENT
    if asked:
        raise InvalidConfigError(
            f"federation {config.federation!r} asks its clients for {', '.join(sorted(asked))}, "
            "Flower's messages carry weights, flag and examples here"
        )
    if config.identity.updates == "signed":
        raise InvalidConfigError(
            f"federation {config.federation!r} takes signed updates, and nodes of Flower sign "
            "none; wanted identity.updates = 'unsigned'"
        )


def with_layer_order(config: FederationConfig, names: Sequence[str]) -> FederationConfig:
    """Return the settings with the layers in the order of the arrays, which a stored model loses.

    Parameters
    ----------
    config : FederationConfig
        Returned as it is, unless it selects last layers and names no order.
    names : sequence of str
        Of the initial arrays, first to last.
    """
    cohorting = config.cohorting
    if cohorting.selector != "last_layers" or cohorting.layer_order:
        return config
    layers = tuple(dict.fromkeys(map(layer_of, names)))
    ordered = cohorting.model_copy(update={"layer_order": layers})
    return config.model_copy(update={"cohorting": ordered})


def fedavg_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that Flower's `FedAvg` knows; one of fed-clma that is None asks nothing.

    Raises
    ------
    InvalidConfigError
        If an option is unknown, or fed-clma's: it names what to write instead.
    """
    known = sorted(set(inspect.signature(FedAvg.__init__).parameters) - {"self"})
    for name, value in options.items():
        if name in _SUCCESSORS and value is not None:
            raise InvalidConfigError(f"{name} is an option of fed-clma; {_SUCCESSORS[name]}")
        if name not in _SUCCESSORS and name not in known:
            raise InvalidConfigError(f"option {name!r} is unknown, Flower's are {', '.join(known)}")
    return {name: value for name, value in options.items() if name in known}
