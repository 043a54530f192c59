"""Cohorting: one method a file, and its parts."""

from __future__ import annotations
