"""Prefect tasks, one verb a file: load, call clma, save, log."""

from __future__ import annotations
