"""What a cohorting method gets and returns.

A method is a function of a `CohortingUnit` and the measured movements of its clients that returns a
`Clustering`. Measuring, recall and evidence are the same for all (`clma.cohorting.form`).

`clma.cohorting.methods` lists them and says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.clustering import Clustering
from clma.config import CohortingConfig
from clma.parameters.moves import Movements
from clma.parameters.tensor_file import TensorFile
from clma.records import ArtifactRef
from clma.rows import CohortingRow

__all__ = [
    "Candidate",
    "CohortingUnit",
    "Evidence",
    "Group",
    "GroupFunction",
    "Grouping",
    "OpenTensors",
    "UnitMember",
    "Witness",
]

OpenTensors = Callable[[ArtifactRef], TensorFile]
"""Opens a stored tensor file; the only way in which a method reaches storage."""


@dataclass(frozen=True, slots=True)
class UnitMember:
    """One quarantined client.

    Parameters
    ----------
    client_id, origin_cohort : str
    tensors : ArtifactRef
        The weights it returned.
    n_examples : int, >= 0
    barred_cohort : str or None
        The cohort it left so recently that it is not recalled there.
    """

    client_id: str
    origin_cohort: str
    tensors: ArtifactRef
    n_examples: int
    barred_cohort: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cohort that a group may be recalled to."""

    cohort_id: str
    model: ArtifactRef


@dataclass(frozen=True, slots=True)
class Witness:
    """The founding update of a cohort that came from the unit's origin.

    Parameters
    ----------
    cohort_id : str
        One of the unit's candidates.
    model : ArtifactRef
        What it was born with.
    reference : ArtifactRef
        What its first members had been sent.
    """

    cohort_id: str
    model: ArtifactRef
    reference: ArtifactRef


@dataclass(frozen=True, slots=True)
class CohortingUnit:
    """Quarantined clients that are compared with each other: one origin, one reference.

    Parameters
    ----------
    unit_id : str
        The origin cohort, or ``pool``.
    round_num : int
    members : tuple of UnitMember
        Sorted by client id.
    reference : ArtifactRef
        The model that movements are measured from.
    candidates : tuple of Candidate
        In the order of their birth; empty where recall is off.
    seed : int
        For methods that draw.
    largest_mean_norm : float
        Length of the longest mean update of the origin cohort so far, where the method keeps it.
    witnesses : tuple of Witness
        In the order of their cohorts' birth; empty where they are not asked for.
    newcomers : bool
        First updates: each is compared with the known cohorts alone, and founds none.
    """

    unit_id: str
    round_num: int
    members: tuple[UnitMember, ...]
    reference: ArtifactRef
    candidates: tuple[Candidate, ...]
    seed: int
    largest_mean_norm: float = 0.0
    witnesses: tuple[Witness, ...] = ()
    newcomers: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measurements of a unit; rows follow its members, its candidates, then its witnesses.

    Parameters
    ----------
    movements : Movements
        Measured from the reference, a witness from its own: n_members + n_candidates + n_witnesses
        rows.
    distances : ndarray of shape (n_members, n_members)
        Cosine distances; where the output layer counts by itself, with its share.
    ks_statistics : ndarray of shape (n_members,), in [-1, 1]
    raw_gram : ndarray of shape (n_members, n_members) or None
        Inner products of the weights themselves, where a method asks for them.
    """

    movements: Movements
    distances: NDArray[np.float64]
    ks_statistics: NDArray[np.float64]
    raw_gram: NDArray[np.float64] | None = None


GroupFunction = Callable[[CohortingUnit, Evidence, CohortingConfig], Clustering]


@dataclass(frozen=True, slots=True)
class Group:
    """Clients that drifted alike, and the known cohort they belong to, if there is one.

    An `unclear` one is a client that was unlike too many others: it founds no cohort at once. One
    that `stays` votes in the cohort that its members come from. `recall_witness` says what the
    score was taken from: the ``way`` to the cohort's model or its ``birth``.
    """

    members: tuple[str, ...]
    recall_cohort: str | None = None
    recall_score: float | None = None
    unclear: bool = False
    stays: bool = False
    recall_witness: str | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """What a unit came to.

    Parameters
    ----------
    unit_id : str
    reference : ArtifactRef
        As in the unit; a new cohort remembers it.
    groups : tuple of Group
        Ordered by smallest member id.
    still : tuple of client id
        Clients that flagged and did not move; they stay where they are.
    rows : tuple of CohortingRow
        Evidence, one row a member, sorted by client id.
    mean_norm : float
        Length of the members' weighted mean update.
    """

    unit_id: str
    reference: ArtifactRef
    groups: tuple[Group, ...]
    still: tuple[str, ...]
    rows: tuple[CohortingRow, ...]
    mean_norm: float = 0.0
