"""Names to vectors: tensor files, selectors, blocks streamed from files."""

from __future__ import annotations
