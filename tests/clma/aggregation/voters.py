"""Voters of one cohort, and the model that a rule makes of them, by way of their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.placement import AggregationJob
from clma.config import preset_config
from clma.records import ArtifactRef, SealedUpdate
from clma.round import aggregate_cohort
from tests.clma.shelf import Shelf

POINTS = np.array([[1.0, 1.0], [1.0, 1.2], [1.1, 1.0], [0.9, 0.9], [100.0, -50.0]])
"""Four that agree and one that does not."""


def model_file(
    shelf: Shelf,
    models: Sequence[dict[str, Any]],
    *,
    base: dict[str, Any] | None = None,
    weights: Sequence[int] | None = None,
    cohorting: dict[str, Any] | None = None,
    **aggregation: Any,
) -> ArtifactRef:
    """Aggregate models of named tensors; `base` is what all were sent, the first one's zeros."""
    zeros = {name: np.zeros_like(np.asarray(values)) for name, values in models[0].items()}
    sent = shelf.put(base or zeros)
    voters = [
        SealedUpdate(f"p{i:02d}", sent.sha256, shelf.put(model), weight, False)
        for i, (model, weight) in enumerate(zip(models, weights or [1] * len(models), strict=True))
    ]
    config = preset_config("test", aggregation=aggregation, cohorting=cohorting or {})
    job = AggregationJob("c0", tuple(voters))
    digest = aggregate_cohort(job, shelf.open, sent.sha256, config, shelf.save).model_digest
    return ArtifactRef(digest, digest)


def model_of(
    shelf: Shelf,
    rows: NDArray[Any],
    *,
    base: NDArray[Any] | None = None,
    weights: Sequence[int] | None = None,
    **aggregation: Any,
) -> NDArray[np.float64]:
    """Aggregate vectors."""
    sent = None if base is None else {"w": base}
    models = [{"w": row} for row in rows]
    made = model_file(shelf, models, base=sent, weights=weights, **aggregation)
    return np.array(shelf.read(made.sha256))
