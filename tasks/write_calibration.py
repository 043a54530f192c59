"""Write what a calibration came to: a page to read, and settings to put in force."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clma.calibration.calibration import Calibration
from clma.ledger.durable_file import replace_files
from clma.report.calibration import calibration_sections, settings_lines
from clma.report.page import to_markdown

__all__ = ["write_calibration"]


@task(cache_policy=NO_CACHE, task_run_name="write {folder}")
def write_calibration(calibration: Calibration, store: str, folder: Path) -> None:
    """Write ``calibration.md`` and ``calibration.toml``."""
    title = f"Thresholds of {calibration.federation}, learned from its own nights"
    page = to_markdown(title, calibration_sections(calibration, store))
    replace_files(
        {
            folder / "calibration.md": page.encode(),
            folder / "calibration.toml": settings_lines(calibration.proposed).encode(),
        }
    )
