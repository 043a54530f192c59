"""Onboarding: cohorts before the first round, from signatures that the plants sent.

`plan` forms cohorts and changes nothing, `carry_out` puts a plan in force, `opening` places whoever
comes later when a round opens, `kept` reads again what clients were placed by.
"""

from __future__ import annotations

__all__ = ["ONBOARD"]

ONBOARD = "python -m flows.onboard --store {store} --federation {name} --apply"
"""Forms the first cohorts and opens the first round."""
