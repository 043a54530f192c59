"""Compare what killed nights came to with the undisturbed one, and count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.reliability.cases import Outcome
from tests.reliability.judge import Facts

__all__ = ["differences", "figures_of", "first_difference", "report_of"]


def differences(outcome: Outcome, expected: Facts) -> list[str]:
    """Return what is not as it has to be, one line each."""
    found = [f"last exit code {outcome.codes[-1]}"] if outcome.codes[-1] else []
    if outcome.case.point and not outcome.n_kills:
        found.append("the point was not reached")
    found += list(outcome.failed_polls[:3])
    if outcome.trouble:
        return [*found, f"cannot be judged: {outcome.trouble.splitlines()[-1]}"]
    for part, wanted in expected.items():
        got = outcome.facts[part]
        if got != wanted:
            found.append(f"{part}: {first_difference(got, wanted)}")
    return found


def first_difference(got: Any, wanted: Any) -> str:
    """Return where two JSON values differ, in one line."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        keys = [k for k in {**wanted, **got} if got.get(k) != wanted.get(k)]
        return f"{keys[0]}: {first_difference(got.get(keys[0]), wanted.get(keys[0]))}"
    if isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        return next(first_difference(g, w) for g, w in zip(got, wanted, strict=True) if g != w)
    return f"{str(got)[:300]}, wanted {str(wanted)[:300]}"


def _decided(facts: Facts) -> str:
    """Return one digest of all that a night decides."""
    parts = [facts[part] for part in ("files", "accepted", "state", "ledger")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def figures_of(outcomes: Sequence[Outcome], expected: Facts) -> dict[str, int]:
    """Count what became of the killed nights."""

    def extra(part: str, facts: Facts) -> int:
        n_extra: int = sum(facts[part].values()) - sum(expected[part].values())
        return max(0, n_extra)

    accepted = {tuple(update) for update in expected["accepted"]}
    facts = [o.facts for o in outcomes if o.facts]
    return {
        "kills": sum(o.n_kills for o in outcomes),
        "restarts": sum(o.n_restarts for o in outcomes),
        "lost_accepted_updates": sum(
            len(accepted - {tuple(u) for u in f["accepted"]}) for f in facts
        ),
        "double_versions": sum(extra("versions", f) for f in facts),
        "double_runs": sum(max(0, len(f["runs"]) - len(expected["runs"])) for f in facts),
        "distinct_hashes": len({_decided(f) for f in [*facts, expected]}),
        "leftovers": sum(len(f["leftovers"]) for f in facts),
        "polls": sum(o.n_polls for o in outcomes),
        "failed_polls": sum(len(o.failed_polls) for o in outcomes),
        "nights_that_differ": sum(bool(differences(o, expected)) for o in outcomes),
    }


def report_of(
    outcomes: Sequence[Outcome], expected: Facts, phase_of: Callable[[str], str]
) -> dict[str, Any]:
    """Return the figures and a line for each case, as JSON values."""
    cases = [
        {
            "name": outcome.case.name,
            "phase": phase_of(outcome.case.point) if outcome.case.point else "random",
            "codes": outcome.codes,
            "differences": differences(outcome, expected),
        }
        for outcome in outcomes
    ]
    return {"figures": figures_of(outcomes, expected), "cases": cases}
