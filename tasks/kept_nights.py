"""Measured nights on disk: what lets a calibration go on where it was stopped.

A file is named after all that its numbers follow from, so one that was made from other inputs is
not taken for the night; one that is damaged is measured again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from clma.cohorting.contract import CohortingUnit
from clma.config import FederationConfig
from clma.ledger.durable_file import replace_files
from clma.parameters.tensor_file import TensorFileError
from clma.sweep.shard import ShardSums
from clma.sweep.shard_file import read_sums, write_sums

__all__ = ["KeptNights"]

SCHEMA = 1
"""Raised when the numbers change their meaning: old files are then not taken for new ones."""

_DECIDES_LATER = frozenset(
    {
        "max_groups",
        "pair_threshold",
        "recall_cooldown",
        "recall_first",
        "recall_margin",
        "recall_threshold",
        "silhouette_floor",
        "silhouette_floor_three",
        "split_ceiling",
    }
)
"""Settings of cohorting that are compared with what was measured, and change nothing in it."""


@dataclass(frozen=True, slots=True)
class KeptNights:
    """The measured nights of a folder.

    Parameters
    ----------
    folder : Path
        Made with the first night.
    """

    folder: Path

    def path(self, units: tuple[CohortingUnit, ...], config: FederationConfig) -> Path:
        """Return where a night is kept; `units` are those of one round, at least one."""
        settings = config.cohorting.model_dump(mode="json")
        values = {
            "schema": SCHEMA,
            "settings": {k: v for k, v in settings.items() if k not in _DECIDES_LATER},
            "units": [
                [
                    unit.reference.sha256,
                    [m.tensors.sha256 for m in unit.members],
                    [c.model.sha256 for c in unit.candidates],
                    [(w.model.sha256, w.reference.sha256) for w in unit.witnesses],
                    unit.seed,
                ]
                for unit in units
            ],
        }
        identity = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return self.folder / f"round={units[0].round_num:06d}--{identity[:16]}.safetensors"

    def load(self, units: tuple[CohortingUnit, ...], config: FederationConfig) -> ShardSums | None:
        """Return what a night was measured to, or None if it has to be measured."""
        try:
            sums = read_sums(self.path(units, config))
        except (FileNotFoundError, TensorFileError):
            return None
        return sums if len(sums.units) == len(units) else None

    def save(
        self, units: tuple[CohortingUnit, ...], config: FederationConfig, sums: ShardSums
    ) -> None:
        """Keep a measured night: whole, or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_files({self.path(units, config): write_sums(sums)})
