"""Formed cohorts as a page: who goes where, how the number was found, who is left out."""

from __future__ import annotations

from collections import Counter

from clma.onboarding.plan import NEW
from clma.onboarding.record import CohortRecord
from clma.report.page import Mark, Section, Table

__all__ = ["cohort_sections"]

N_NAMED = 8
N_LINES = 10


def cohort_sections(record: CohortRecord) -> list[Section]:
    """Return the sections of a page on formed cohorts.

    Parameters
    ----------
    record : CohortRecord
    """
    sections = [_cohorts(record), _number(record)]
    if record.missing or record.refused:
        sections.append(_left_out(record))
    return sections


def _cohorts(record: CohortRecord) -> Section:
    members: dict[str, list[str]] = {}
    for client_id, placed in record.clients.items():
        members.setdefault(placed.cohort_id, []).append(client_id)
    order = sorted(members, key=lambda c: (c.startswith(NEW), len(c), c))
    header = ("cohort", "clients", "within", "to nearest", "starts from", "members")
    rows = tuple(_row(record, cohort, members[cohort]) for cohort in order)
    n_moves = sum(p.cohort_id != p.before for p in record.clients.values())
    text = (
        f"{len(order)} {'cohort' if len(order) == 1 else 'cohorts'} of {len(record.clients)} "
        f"clients; {n_moves} of them are in another one now. Distances are means over members.",
    )
    title = f"{record.federation}: cohorts for round {record.round_num}"
    return Section(title, text, tables=(Table(header, rows),))


def _row(record: CohortRecord, cohort: str, members: list[str]) -> tuple[Mark, ...]:
    within = [d for c in members if (d := record.clients[c].distances.get(cohort)) is not None]
    others = {
        other: sum(record.clients[c].distances[other] for c in members) / len(members)
        for other in {p.cohort_id for p in record.clients.values()} - {cohort}
    }
    nearest = min(others, key=lambda other: (others[other], other)) if others else None
    shown = ", ".join(sorted(members)[:N_NAMED])
    more = f" and {len(members) - N_NAMED} more" if len(members) > N_NAMED else ""
    return (
        Mark(cohort),
        Mark(str(len(members))),
        Mark(f"{sum(within) / len(within):.2f}" if within else "-"),
        Mark(f"{others[nearest]:.2f} ({nearest})" if nearest else "-"),
        Mark(_starts_from(record, cohort, members)),
        Mark(shown + more),
    )


def _starts_from(record: CohortRecord, cohort: str, members: list[str]) -> str:
    if cohort in record.parents:
        return record.parents[cohort]
    if record.round_num == 1:
        return "base model"
    stay = Counter(record.clients[c].before for c in members)[cohort]
    return f"its own ({stay} stay)"


def _number(record: CohortRecord) -> Section:
    chosen = len({p.cohort_id for p in record.clients.values()})
    text = [
        f"Rule: {record.rule}. The distances vary by {record.variation:.2f} of their mean, so "
        f"{record.window[0]} to {record.window[1]} groups were looked at."
    ]
    if record.warning:
        text.append(f"Warning: {record.warning}.")
    names = {k: f"{k} (chosen)" if k == chosen else str(k) for k, _ in record.silhouettes}
    rows = tuple((Mark(names[k]), Mark(f"{s:.3f}")) for k, s in record.silhouettes)
    tables = (Table(("groups", "mean silhouette"), rows),) if rows else ()
    return Section("How many", tuple(text), tables=tables)


def _left_out(record: CohortRecord) -> Section:
    lines = list(record.refused.values())
    lines += [f"client '{client_id}': no signature has come" for client_id in record.missing]
    more = len(lines) - N_LINES
    shown = lines[:N_LINES] + ([f"and {more} more"] if more > 0 else [])
    return Section("Left out: these start in the root cohort", tuple(shown))
