"""What a person sees of a calibration while nights are being read, on stderr."""

from __future__ import annotations

import time

from rich.console import Console

__all__ = ["CalibrateScreen"]

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
