"""What a person sees of a calibration: what is being read on stderr, what was learned on stdout."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from clma.report.page import Section

__all__ = ["CalibrateScreen", "show_sections"]

_QUIET_S = 2.0


class CalibrateScreen:
    """Says how far a calibration is, every other second.

    Parameters
    ----------
    federation : str
    """

    def __init__(self, federation: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._federation = federation
        self._last = self._since = time.monotonic()

    def start(self, n_rounds: int, n_kept: int, n_missing: int) -> None:
        """Say what is about to happen."""
        self._since = time.monotonic()
        kept = f", {n_kept} of them measured before" if n_kept else ""
        self.say(f"{self._federation}: {n_rounds} rounds{kept}; {n_missing} to be measured")

    def measured(self, n_done: int, n_missing: int) -> None:
        """Count a night."""
        seconds = (time.monotonic() - self._since) / n_done * (n_missing - n_done)
        self.tell(f"{n_done}/{n_missing} rounds measured; about {seconds:.0f} s left")

    def tell(self, text: str) -> None:
        """Show a line if the last one was two seconds ago."""
        if time.monotonic() - self._last >= _QUIET_S:
            self.say(text)

    def say(self, text: str) -> None:
        """Show a line."""
        self._last = time.monotonic()
        self._console.print(text, soft_wrap=True, markup=False)


def show_sections(sections: Sequence[Section]) -> None:
    """Show what was learned on stdout."""
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
