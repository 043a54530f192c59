"""What a federation's history taught, for reading: on a screen, as a page, as settings.

Examples
--------
>>> print(settings_lines(("cohorting.pair_threshold=0.55",)), end="")
cohorting.pair_threshold = 0.55
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from clma.calibration.calibration import Calibration
from clma.calibration.rates import Rate
from clma.calibration.thresholds import Proposal
from clma.calibration.what_if import NightAgain
from clma.report.page import Mark, Section, Table

__all__ = ["calibration_sections", "configure_command", "nothing_learned", "settings_lines"]


def nothing_learned(calibration: Calibration) -> str:
    """Return one line for a federation in which nobody drifted yet."""
    return (
        f"{calibration.federation}: nothing to learn from, "
        f"nobody was set apart in {calibration.n_rounds} committed rounds"
    )


def configure_command(store: str, calibration: Calibration) -> str:
    """Return the command that puts what is proposed in force; empty if nothing is."""
    if not calibration.proposed:
        return ""
    words = ["clma", "configure", "--store", store, "--federation", calibration.federation]
    return shlex.join(
        [*words, *(w for setting in calibration.proposed for w in ("--set", setting))]
    )


def settings_lines(proposed: Sequence[str]) -> str:
    """Return settings as TOML, a line each, which ``--set`` takes, too."""
    return "".join(f"{setting.replace('=', ' = ', 1)}\n" for setting in proposed)


def calibration_sections(calibration: Calibration, store: str) -> list[Section]:
    """Return everything that was learned.

    Parameters
    ----------
    calibration : Calibration
    store : str
        Where the federation is, for the command.
    """
    sections = [_evidence(calibration)]
    if calibration.thresholds:
        sections.append(
            Section(
                "Cohorting",
                tuple(_why(p) for p in calibration.thresholds),
                tables=(_proposals(calibration.thresholds, "splits", "misses"),),
            )
        )
    sections.append(_detector(calibration))
    command = configure_command(store, calibration)
    sections.append(
        Section("To put in force", code=command)
        if command
        else Section("To put in force", ("Nothing is proposed: the settings stay.",))
    )
    if calibration.again:
        sections.append(_what_if(calibration))
    return sections


def _evidence(calibration: Calibration) -> Section:
    seen, flags = calibration.hindsight, calibration.flags
    n_alike = sum(p.alike for p in seen.pairs)
    n_apart = sum(not p.seen for p in seen.pairs)
    unseen = f" ({n_apart} of these only since they stayed apart)" * (n_apart > 0)
    recalls = [r for r in seen.recalls if r.cohort_id is not None]
    text = [
        f"{calibration.n_rounds} committed rounds, {calibration.first_round} to "
        f"{calibration.last_round}.",
        f"Pairs of clients that were compared: {n_alike} belong together, "
        f"{len(seen.pairs) - n_alike} do not{unseen}; of {seen.n_unclear} it is not known; "
        f"{seen.n_false_alarms} had a client that went home.",
        f"Recalled clients: {sum(r.right for r in recalls)} rightly, "
        f"{sum(not r.right for r in recalls)} wrongly.",
        f"Drift flags: {_rate(flags.flags)} of client-nights; false alarms: "
        f"{_rate(flags.false_alarms)} of those that were asked, about "
        f"{flags.false_alarm_rate:.4f} per client and night. Unflagged outliers: "
        f"{_rate(flags.outliers)} of client-nights.",
    ]
    text += [f"Round {r} was left out: {why}." for r, why in sorted(calibration.unread.items())]
    return Section("Evidence", tuple(text))


def _detector(calibration: Calibration) -> Section:
    if not calibration.losses_shared:
        text = (
            "Losses stay at the plants, so the detector's settings can be replayed there only; "
            "what is known here is how many flags were false alarms."
        )
        return Section("Detector", (text,))
    if not calibration.detector:
        return Section("Detector", ("The configured detector has no setting to try.",))
    note = (
        "Recorded flags that larger values would not have raised. Drifts that nobody flagged are "
        "not known, and neither is the noise of each loss, so smaller values and z_score are not "
        "tried."
    )
    return Section(
        "Detector",
        (note, *(_why(p) for p in calibration.detector)),
        tables=(_proposals(calibration.detector, "false alarms", "lost flags"),),
    )


def _proposals(proposals: Sequence[Proposal], false_alarms: str, misses: str) -> Table:
    header = ("setting", "in force", "proposed", f"wrong {false_alarms}", misses)
    if misses == "lost flags":
        header = ("setting", "in force", "proposed", false_alarms, misses)
    return Table(header, tuple(_proposal_row(p) for p in proposals))


def _proposal_row(p: Proposal) -> tuple[Mark, ...]:
    cells = [Mark(p.setting), Mark(f"{p.in_force:g}"), Mark(f"{p.value:g}", best=p.changes)]
    for kind in ("false_alarms", "misses"):
        now = getattr(p.errors, kind, None)
        before = getattr(p.errors_in_force, kind, None)
        text = "-" if now is None else _rate(now)
        if p.changes and now is not None and before is not None and now != before:
            text = f"{before.count} -> {text}"
        cells.append(Mark(text))
    return tuple(cells)


def _why(p: Proposal) -> str:
    verb = f"{p.in_force:g} -> {p.value:g}" if p.changes else f"stays {p.in_force:g}"
    unseen = f" Of {p.n_unseen} cases the only witness is the decision itself." * (p.n_unseen > 0)
    return f"{p.setting} {verb}: {p.reason}.{unseen}"


def _what_if(calibration: Calibration) -> Section:
    text = (
        f"With {', '.join(calibration.what_if)}: how many were in quarantine, to how many cohorts "
        "they went, and how far both groupings agree (adjusted Rand index, 1 is equal). "
        "Every night is decided again from its own recorded state: what plants would have sent "
        "after another decision is not known."
    )
    header = ("round", "in quarantine", "went to", "agreement", "recalled otherwise")
    rows = tuple(_night_row(night) for night in calibration.again)
    return Section("The recorded nights, decided again", (text,), tables=(Table(header, rows),))


def _night_row(night: NightAgain) -> tuple[Mark, ...]:
    return tuple(
        Mark(str(value))
        for value in (
            night.round_num,
            _then(night.n_recorded, night.n_again),
            _then(night.cohorts_recorded, night.cohorts_again),
            f"{night.agreement:.2f}",
            ", ".join(night.changed) or "nobody",
        )
    )


def _then(recorded: int, again: int) -> str:
    return str(recorded) if recorded == again else f"{recorded} -> {again}"


def _rate(rate: Rate) -> str:
    if not rate.total:
        return "0 of 0"
    return f"{rate.count} of {rate.total} ({100 * rate.low:.0f}-{100 * rate.high:.0f} %)"
