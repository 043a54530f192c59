"""Sections of a page on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from clma.report.page import Section

__all__ = ["show_sections"]


def show_sections(sections: Sequence[Section]) -> None:
    """Show sections with their tables on stdout."""
    console = Console(highlight=False)
    for section in sections:
        console.print(f"\n{section.title}", style="bold", markup=False)
        for text in section.text:
            console.print(text, markup=False, soft_wrap=True)
        for shown in section.tables:
            table = Table()
            for number, name in enumerate(shown.header):
                table.add_column(name, justify="right" if number else "left", no_wrap=not number)
            for row in shown.rows:
                table.add_row(*(mark.text for mark in row))
            console.print(table)
        if section.code:
            console.print(section.code, markup=False, soft_wrap=True)
