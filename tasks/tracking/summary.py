"""What a round looks like from outside: its numbers, its settings and its night in a few lines.

Pure functions of what was decided; MLflow is not needed here.

Examples
--------
>>> flatten_settings({"round": {"quorum": 2}, "share": ["weights", "flag"]})
{'round.quorum': '2', 'share': 'weights, flag'}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clma.records import ClientStatus, CohortStatus
from clma.rows import AssignmentRow, CohortRow, DriftRow, Gate, RoundDecision, Verdict

__all__ = [
    "active_rows",
    "cohort_metrics",
    "cohort_note",
    "cohort_params",
    "flatten_settings",
    "mean_losses",
    "round_metrics",
    "round_note",
    "split_finite",
]

_MAX_SETTING = 480
_MAX_LISTED = 12


def active_rows(cohorts: Iterable[CohortRow]) -> tuple[CohortRow, ...]:
    """Return the rows of the cohorts that train."""
    return tuple(row for row in cohorts if row.status is CohortStatus.ACTIVE)


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as ``section.key`` to text, long ones cut.

    Parameters
    ----------
    values : mapping
        Not modified.
    prefix : str
        In front of every key.
    """
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            flat[f"{prefix}{key}"] = f"{len(value)} entries"
        else:
            parts = value if isinstance(value, list | tuple) else [value]
            flat[f"{prefix}{key}"] = _cut(", ".join(str(p) for p in parts), _MAX_SETTING)
    return flat


def round_metrics(decision: RoundDecision) -> dict[str, float]:
    """Count a round: clients by verdict and by what became of them, cohorts and their members.

    Returns
    -------
    dict of name to number
        ``accepted``, ``rejected``, ``late``, ``missing`` are submissions; ``drifted`` clients
        raised the flag, ``quarantined`` ones were taken out of their cohort this round, of which
        ``created``, ``recalled``, ``kept`` and ``held`` say where they went; ``outliers`` pointed
        against their cohort and did not vote; ``n_cohorts`` train.
        ``mean_loss`` is there only where losses are shared.
    """
    verdicts = Counter(row.verdict for row in decision.updates)
    decisions = Counter(row.decision for row in decision.cohorting)
    active = active_rows(decision.cohorts)
    metrics: dict[str, float] = {verdict.value: verdicts[verdict] for verdict in Verdict}
    metrics["drifted"] = sum(row.drift_flag for row in decision.drift)
    metrics["quarantined"] = len(decision.cohorting)
    metrics |= {name: decisions[name] for name in ("created", "recalled", "kept", "held")}
    metrics["outliers"] = len(_outliers(decision.drift))
    metrics["n_cohorts"] = len(active)
    for row in active:
        metrics[f"cohort_{row.cohort_id}/n_members"] = row.n_members
    losses = _losses(decision.drift)
    if losses:
        metrics["mean_loss"] = math.fsum(losses) / len(losses)
    return metrics


def cohort_metrics(row: CohortRow, decision: RoundDecision) -> dict[str, float]:
    """Return one cohort's numbers: its sizes, its own metrics, its members' mean loss if shared."""
    metrics: dict[str, float] = {
        "n_members": row.n_members,
        "n_updates": row.n_updates,
        "n_examples": row.n_examples,
        **row.metrics,
    }
    losses = mean_losses(decision.assignments, decision.drift)
    if row.cohort_id in losses:
        metrics["mean_loss"] = losses[row.cohort_id]
    return metrics


def cohort_params(row: CohortRow) -> dict[str, str]:
    """Return what stays with a cohort: its id, where it came from and since when."""
    return {
        "cohort_id": row.cohort_id,
        "parent": row.parent or "",
        "born_round": str(row.born_round),
    }


def mean_losses(
    assignments: Sequence[AssignmentRow], drift: Sequence[DriftRow]
) -> dict[str, float]:
    """Return the mean loss of each cohort's members after the round, where losses are shared."""
    cohort_of = {row.client_id: row.cohort_after for row in assignments}
    members: dict[str, list[DriftRow]] = {}
    for row in drift:
        members.setdefault(cohort_of.get(row.client_id, row.cohort_before), []).append(row)
    losses = {cohort_id: _losses(rows) for cohort_id, rows in members.items()}
    return {c: math.fsum(values) / len(values) for c, values in losses.items() if values}


def split_finite(metrics: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Return the finite metrics, and the names of the others, sorted."""
    finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
    return finite, sorted(metrics.keys() - finite)


def round_note(federation: str, decision: RoundDecision, prefect_url: str | None = None) -> str:
    """Tell the night in a few lines of Markdown."""
    counts = round_metrics(decision)
    lines = [
        f"**Round {decision.round_num} of {federation}**: {counts['accepted']:.0f} updates "
        f"accepted, {counts['rejected']:.0f} rejected, {counts['missing']:.0f} missing; "
        f"{counts['drifted']:.0f} clients flagged drift.",
        "",
        *_moves(decision.assignments),
        *_refusals(decision),
        *_held_out(decision.drift),
        "| cohort | members | updates | model | gate |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    lines += [_cohort_line(row) for row in active_rows(decision.cohorts)]
    return "\n".join([*lines, *_link(prefect_url)])


def cohort_note(
    federation: str, round_num: int, row: CohortRow, prefect_url: str | None = None
) -> str:
    """Tell one cohort's round in a few lines of Markdown."""
    lines = [
        f"**Cohort {row.cohort_id} of {federation}, round {round_num}**: {row.n_members} members, "
        f"{row.n_updates} updates, {row.n_examples} examples; model {_gate(row)}.",
        "",
        f"Model `{row.model_digest}`",
    ]
    return "\n".join([*lines, *_link(prefect_url)])


def _moves(assignments: Sequence[AssignmentRow]) -> list[str]:
    moved: dict[tuple[str, str], list[str]] = {}
    waiting = []
    for row in assignments:
        if row.status is ClientStatus.QUARANTINED:
            waiting.append(row.client_id)
        elif row.cohort_after != row.cohort_before:
            moved.setdefault((row.cohort_before, row.cohort_after), []).append(row.client_id)
    lines = [f"- {_listed(c)} moved from {a} to {b}" for (a, b), c in sorted(moved.items())]
    if waiting:
        lines.append(f"- {_listed(waiting)} in quarantine, served as before")
    return [*lines, ""] if lines else ["No client changed cohort.", ""]


def _refusals(decision: RoundDecision) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in decision.updates:
        if row.verdict is Verdict.REJECTED:
            reasons.setdefault(row.reason or "no reason given", []).append(row.client_id)
    lines = [f"- {_listed(c)} rejected: {_plain(r)}" for r, c in sorted(reasons.items())]
    return [*lines, ""] if lines else []


def _outliers(drift: Iterable[DriftRow]) -> list[str]:
    return [row.client_id for row in drift if row.server_check == "outlier"]


def _held_out(drift: Iterable[DriftRow]) -> list[str]:
    outliers = _outliers(drift)
    line = f"- {_listed(outliers)} held out of the models: against the others of the cohort"
    return [line, ""] if outliers else []


def _cohort_line(row: CohortRow) -> str:
    cells = (row.cohort_id, row.n_members, row.n_updates, f"`{row.model_digest[:12]}`", _gate(row))
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _gate(row: CohortRow) -> str:
    detail = f" ({_plain(row.gate_detail)})" if row.gate_detail and row.gate is Gate.HELD else ""
    return f"{row.gate.value}{detail}"


def _link(prefect_url: str | None) -> list[str]:
    return ["", f"[Prefect run]({prefect_url})"] if prefect_url else []


def _listed(clients: Sequence[str]) -> str:
    shown = ", ".join(_plain(c) for c in clients[:_MAX_LISTED])
    more = len(clients) - _MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _plain(text: str) -> str:
    """Keep text from outside from being read as Markdown or HTML."""
    text = _cut(" ".join(text.split()), 200)
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!&" else c for c in text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _losses(rows: Iterable[DriftRow]) -> list[float]:
    return [row.loss for row in rows if row.loss is not None]
