"""A federation with its MLflow in one folder: ready for a night, copied for every kill."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from clma.ledger.federation import Federation
from tasks import tracking
from tests.flows.fleet import found

__all__ = ["COHORTS", "NAME", "Site"]

NAME = "killtest"
COHORTS = ("c0", "c1", "c2")
"""Those that train after round 2; the first one does before, too."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place where nights are run.

    Parameters
    ----------
    folder : Path
    """

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "fleet" / "store"

    @property
    def database(self) -> Path:
        return self.folder / "mlruns" / "mlflow.db"

    @property
    def tracking(self) -> tracking.Tracking:
        return tracking.resolve_tracking(self.folder)

    def federation(self) -> Federation:
        return Federation.open(self.store, NAME)

    def build(self) -> None:
        """Make it: round 1 is published, round 2 is open and every update is in."""
        federation = found(self.folder / "fleet", NAME)
        tracking.publish_cohort(federation, 1, "c0", self.tracking)
        tracking.publish_round(federation, 1, self.tracking)

    def copy(self, folder: Path) -> Site:
        """Return a copy that knows nothing of this one."""
        for part in ("fleet", "mlruns"):
            shutil.copytree(self.folder / part, folder / part)
        made = Site(folder)
        _replace_everywhere(made.database, str(self.folder), str(folder))
        return made


def _replace_everywhere(database: Path, old: str, new: str) -> None:
    """Replace a text in every column: MLflow writes down absolute places."""
    connection = sqlite3.connect(database)
    with connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        for (table,) in tables:
            for column in connection.execute(f"PRAGMA table_info({table})").fetchall():
                name = column[1]
                connection.execute(
                    f'UPDATE "{table}" SET "{name}" = replace("{name}", ?, ?) '  # noqa: S608
                    f'WHERE typeof("{name}") = \'text\' AND instr("{name}", ?)',
                    (old, new, old),
                )
    connection.close()
