"""``python -m clma.cli``."""

from __future__ import annotations

from clma.cli import main

if __name__ == "__main__":
    main()
