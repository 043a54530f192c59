"""How flows are run for good: schedules, servers, pages to look at; no logic of rounds."""

from __future__ import annotations
