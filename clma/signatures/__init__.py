"""Signatures: what a client tells of its data, so that it is compared without being shown."""

from __future__ import annotations
