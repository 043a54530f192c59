"""Drift detectors: one a file, all with the contract of `clma.drift.detector`."""

from __future__ import annotations

from clma.config import DriftConfig
from clma.drift.anchored import AnchoredDetector
from clma.drift.detector import Detector, DetectorState, DriftReading
from clma.drift.loss_threshold import LossThresholdDetector
from clma.drift.quiet_level import QuietLevelDetector

__all__ = [
    "AnchoredDetector",
    "Detector",
    "DetectorState",
    "DriftReading",
    "LossThresholdDetector",
    "QuietLevelDetector",
    "make_detector",
]


def make_detector(config: DriftConfig) -> Detector:
    """Return the detector that a federation's configuration names."""
    if config.detector == "loss_threshold":
        return LossThresholdDetector(gamma=config.gamma, patience=config.patience)
    if config.detector == "quiet_level":
        return QuietLevelDetector(
            anchor_fraction=config.anchor_fraction,
            relative_rise=config.relative_rise,
            z_score=config.z_score,
            noise_ceiling=config.noise_ceiling,
            creep=config.creep,
            recheck=config.recheck,
        )
    return AnchoredDetector(
        anchor_fraction=config.anchor_fraction,
        relative_rise=config.relative_rise,
        z_score=config.z_score,
        creep=config.creep,
    )
