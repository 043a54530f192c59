"""Keep a fleet's models right when its plants drift apart."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
