"""Named sets of settings: our method, CLMA as listed, and every method of the literature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clma.config.sections import CohortingConfig, OnboardingConfig
from clma.errors import InvalidConfigError
from clma.methods import required

__all__ = ["PRESETS", "preset_settings", "requirements"]

# Ours. What a configuration without these lines means stays what it meant.
_PRODUCT = {"outlier_check": True}
_DRIFT = {
    "detector": "quiet_level",
    "relative_rise": 0.15,
    "z_score": 4.0,
    "creep": True,
    "recheck": True,
    "confirm_rounds": 3,
    "probation": True,
}
_COHORTS = {
    "output_weight": 0.5,
    "birth_witness": True,
    "recall_first": True,
    "recall_margin": 0.15,
    "split_ceiling": 0.4,
    "merge": True,
    "max_live_cohorts": 64,
    "max_remembered": 64,
}
_PLAIN = {"method": "weighted_mean", "outlier_check": False}
"""Of the literature: nobody's update is shortened or held out."""

_FMCL = {"method": "fmcl"}
# As published, as far as it is: no centring, the mean divided by the overlap once more, and hardly
# a fleet that is one group.
_FMCL_PAPER = {
    "method": "fmcl",
    "overlap": "penalize",
    "center": "none",
    "silhouette_floor": 0.05,
}

_LITERAL_DRIFT = {
    "detector": "loss_threshold",
    "loss_point": "after",
    "gamma": 0.1,
    "confirm": False,
}

# The drift test of FedDrift, on the loss of the best model a client was sent; delta is 0.5 for a
# cross-entropy in nats.
_FEDDRIFT_DRIFT = {
    "detector": "loss_threshold",
    "loss_point": "before",
    "gamma": 0.5,
    "confirm": False,
}


def _baseline(method: str, **sections: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a method of the literature: plain means, no recall, no way home."""
    return {
        "aggregation": _PLAIN,
        "drift": {"confirm": False},
        "cohorting": {"method": method, "recall": False},
        **sections,
    }


def _ours(**sections: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return our method with a few settings of its own."""
    return {
        "drift": {**_DRIFT, **sections.get("drift", {})},
        "cohorting": {**_COHORTS, **sections.get("cohorting", {})},
        "aggregation": _PRODUCT,
    }


PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "clma": _ours(),
    "clma-flag": _ours(drift={"confirm": False}),
    "clma-choice": _ours(cohorting={"choice": "one"}),
    "clma-probe": _ours(cohorting={"choice": "all"}),
    "clma-sketch": _ours(cohorting={"distance": "sketch"}),
    "clma-literal": {
        "aggregation": _PLAIN,
        "drift": _LITERAL_DRIFT,
        "cohorting": {
            "method": "signed_ks",
            "selector": "all",
            "reference": "consensus",
            "center": False,
            "clusterer": "fixed_kmeans",
            "fixed_k": 2,
            "recall": False,
        },
    },
    "clma-package": {
        "aggregation": _PLAIN,
        "drift": _LITERAL_DRIFT,
        "cohorting": {
            "method": "signed_ks",
            "selector": "default",
            "reference": "consensus",
            "center": True,
            "clusterer": "silhouette_kmeans",
            "max_groups": 10,
            "recall": False,
        },
    },
    "fedavg": _baseline("single"),
    "fedprox": _baseline("single", client={"proximal_mu": 0.01}),
    "feddrift": _baseline("feddrift", drift=_FEDDRIFT_DRIFT),
    "feddrift-eager": _baseline("feddrift_eager", drift=_FEDDRIFT_DRIFT),
    "ifca": _baseline("ifca"),
    "cfl": _baseline("cfl"),
    "pacfl": _baseline("pacfl"),
    "fecfl": _baseline("fecfl"),
    "fmcl": _baseline("single", onboarding=_FMCL),
    "fmcl-paper": _baseline("single", onboarding=_FMCL_PAPER),
    "fmcl-clma": {**_ours(), "onboarding": _FMCL},
    "local": _baseline("local"),
    "flash": _baseline("single", aggregation={**_PLAIN, "server_optimizer": "flash"}),
    "adaptive-fedavg": _baseline(
        "single", aggregation={**_PLAIN, "server_optimizer": "adaptive_fedavg"}
    ),
    # Our flags, so that what grouping is worth can be read off.
    "singletons": {
        "drift": _DRIFT,
        "aggregation": _PLAIN,
        "cohorting": {"method": "singletons", "recall": False},
    },
}


def requirements(preset: str) -> frozenset[str]:
    """Return what ``privacy.share`` has to name for a preset.

    Raises
    ------
    InvalidConfigError
        If the preset is unknown.
    """
    settings = preset_settings(preset)
    cohorting = CohortingConfig.model_construct(**settings.get("cohorting", {}))
    onboarding = OnboardingConfig.model_construct(**settings.get("onboarding", {}))
    return required(cohorting.method, cohorting.choice, onboarding.method)


def preset_settings(preset: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of a preset or of ``oracle``; InvalidConfigError if there is none."""
    if preset == "oracle":
        return _baseline("given")
    if preset not in PRESETS:
        raise InvalidConfigError(
            f"preset {preset!r} is unknown, wanted one of {', '.join(sorted([*PRESETS, 'oracle']))}"
        )
    return PRESETS[preset]
