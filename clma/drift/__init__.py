"""Drift detectors: one a file, all with the contract of `clma.drift.detector`."""

from __future__ import annotations

from clma.config import DriftConfig
from clma.drift.anchored import AnchoredDetector
from clma.drift.detector import Detector, DetectorState, DriftReading
from clma.drift.loss_threshold import LossThresholdDetector

__all__ = [
    "AnchoredDetector",
    "Detector",
    "DetectorState",
    "DriftReading",
    "LossThresholdDetector",
    "make_detector",
]


def make_detector(config: DriftConfig) -> Detector:
    """Return the detector that a federation's configuration names."""
    if config.detector == "loss_threshold":
        return LossThresholdDetector(gamma=config.gamma, patience=config.patience)
    return AnchoredDetector(
        anchor_fraction=config.anchor_fraction,
        relative_rise=config.relative_rise,
        z_score=config.z_score,
        creep=config.creep,
        baseline_rounds=config.baseline_rounds,
        recheck=config.recheck,
    )
