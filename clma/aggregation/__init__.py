"""Aggregation: how a cohort's model is made from its members' updates."""

from __future__ import annotations
