"""Write what a comparison came to: two tables, and a summary to read."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clma.ledger.durable_file import replace_files
from clma.report.comparison_page import Comparison, comparison_sections
from clma.report.comparison_tables import results_bytes, rounds_bytes
from clma.report.page import to_html, to_markdown

__all__ = ["write_comparison"]


@task(cache_policy=NO_CACHE, task_run_name="write {folder}")
def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write ``results.parquet``, ``rounds.parquet``, ``summary.md`` and ``summary.html``."""
    sections = comparison_sections(comparison)
    title = "Methods side by side"
    folder.mkdir(parents=True, exist_ok=True)
    replace_files(
        {
            folder / "results.parquet": results_bytes(comparison.rows),
            folder / "rounds.parquet": rounds_bytes(comparison.results),
            folder / "summary.md": to_markdown(title, sections).encode(),
            folder / "summary.html": to_html(title, sections).encode(),
        }
    )
