"""Prefect flows, one a file; a flow reads like a table of contents."""

from __future__ import annotations
