"""What can be wrong with MLflow's copy of a federation, in one line each with what mends it.

Examples
--------
>>> listed([1, 2, 3, 7])
'1-3, 7'
>>> lines = differences([Finding(Trouble.RUN_DELETED, "1"), Finding(Trouble.RUN_DELETED, "2/c1")])
>>> [line.what for line in lines]
['runs were deleted in MLflow: round 1, cohort c1 of round 2']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from clma.doctor import Difference
from clma.ledger.federation import Federation
from clma.rows import CohortRow
from tasks.tracking.history import History
from tasks.tracking.inventory import Inventory
from tasks.tracking.location import Tracking
from tasks.tracking.names import round_key
from tasks.tracking.summary import active_rows

__all__ = ["PLACE", "Finding", "Look", "Trouble", "differences", "listed", "silent"]

PLACE = "mlflow"

_MAX_LISTED = 6


class Trouble(StrEnum):
    """What is wrong; the text goes before the list of what it is about."""

    EXPERIMENT_MISSING = "the experiment is missing"
    EXPERIMENT_DELETED = "the experiment was deleted in MLflow"
    NOT_FORGOTTEN = "clients that were forgotten are still shown, see ledger entry"
    RUN_DELETED = "runs were deleted in MLflow"
    RUN_MISSING = "not published, or not to the end"
    RUN_CHANGED = "runs do not show what the ledger decided"
    RUN_TWICE = "runs are there more than once"
    RUN_UNKNOWN = "runs of rounds or cohorts that the ledger does not know"
    FILES_CHANGED = "files are missing or other than the ledger's"
    VERSION_MISSING = "models have no version in the registry"
    VERSION_TWICE = "versions are there more than once"
    VERSION_UNKNOWN = "versions of models that the ledger does not know"
    WEIGHTS_CHANGED = "versions whose weights are missing or other than the ledger's"
    MODEL_DELETED = "versions whose logged model was deleted, so that mlflow gc takes their weights"
    ALIAS_WRONG = "the alias champion is missing or not on the served model"

    @property
    def needs_repair(self) -> bool:
        """Tell whether publishing what is missing does not help."""
        return self not in _MISSING


_MISSING = frozenset(
    {
        Trouble.EXPERIMENT_MISSING,
        Trouble.EXPERIMENT_DELETED,
        Trouble.NOT_FORGOTTEN,
        Trouble.RUN_DELETED,
        Trouble.RUN_MISSING,
        Trouble.VERSION_MISSING,
        Trouble.ALIAS_WRONG,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the ledger says.

    Parameters
    ----------
    trouble : Trouble
    about : str
        A round (``7``), a cohort's round (``7/c1``), a version (``north.c1 version 3``), or empty.
    detail : str
        What exactly, for a human.
    runs : tuple of Run
        To be written again or removed.
    versions : tuple of ModelVersion
        To be replaced or removed.
    """

    trouble: Trouble
    about: str = ""
    detail: str = ""
    runs: tuple[Run, ...] = ()
    versions: tuple[ModelVersion, ...] = ()


def silent(_line: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what MLflow holds of a federation.

    Parameters
    ----------
    federation : Federation
    history : History
    inventory : Inventory
    tracking : Tracking
    thorough : bool
        Look at all files, wherever they are.
    on_progress : callable
        Told how far it is.
    """

    federation: Federation
    history: History
    inventory: Inventory
    tracking: Tracking
    thorough: bool = False
    on_progress: Callable[[str], None] = silent

    def promised_rows(self) -> Mapping[str, CohortRow]:
        """Return key of a cohort's run to what the round decided about the cohort."""
        name = self.federation.name
        return {
            round_key(name, r, row.cohort_id): row
            for r in self.history.rounds
            for row in active_rows(self.history.cohorts(r))
        }


def differences(findings: Iterable[Finding], command: str = "") -> list[Difference]:
    """Return one line for each kind of trouble.

    Parameters
    ----------
    findings : iterable of Finding
    command : str
        That publishes this federation, without options that mend.
    """
    by_kind: dict[Trouble, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.trouble, []).append(finding)
    lines = []
    for trouble, found in by_kind.items():
        about = _about(found)
        mend = f"{command} --repair" if trouble.needs_repair else command
        what = trouble.value + (f": {about}" if about else "")
        lines.append(Difference(PLACE, " ".join(what.split()), mend))
    return lines


def _about(found: Sequence[Finding]) -> str:
    rounds = sorted({int(f.about) for f in found if f.about.isdigit()})
    parts = [f"round{'s' if len(rounds) > 1 else ''} {listed(rounds)}"] if rounds else []
    others = [f for f in found if not f.about.isdigit() and f.about]
    parts += [_shown(f.about) for f in others[:_MAX_LISTED]]
    parts += [f"{len(others) - _MAX_LISTED} more"] if len(others) > _MAX_LISTED else []
    details = {f.detail: None for f in found if f.detail}
    shown = ", ".join(list(details)[:_MAX_LISTED])
    return ", ".join(parts) + (f" ({shown})" if shown else "")


def _shown(about: str) -> str:
    round_num, slash, cohort_id = about.partition("/")
    return f"cohort {cohort_id} of round {round_num}" if slash else about


def listed(numbers: Iterable[int]) -> str:
    """Return rising numbers with runs of them as ``first-last``, the middle left out if long."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    texts = [str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans]
    if len(texts) > 2 * _MAX_LISTED:
        texts = [*texts[:_MAX_LISTED], "...", *texts[-_MAX_LISTED:]]
    return ", ".join(texts)
