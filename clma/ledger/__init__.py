"""The federation folder: numbered entries, artifacts and state on any object store."""

from __future__ import annotations
