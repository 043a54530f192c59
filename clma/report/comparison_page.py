"""What a comparison came to, for reading: sections with tables and pictures, from its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from statistics import fmean

from clma.report.comparison import (
    PairedDifference,
    check_unique,
    curve_of,
    figure_of,
    in_reading_order,
    paired_difference,
)
from clma.report.comparison_figures import difference_chart
from clma.report.figures import metric_curves, png_bytes
from clma.report.page import Mark, Picture, Section, Table
from clma.simulation.cells import Cell, CellResult, CellRow

__all__ = ["Comparison", "comparison_sections"]

OURS = "clma"

_COMPARED = {"drifted_f1": "drifted F1", "stationary_f1": "stationary F1"}

_FIGURES: Mapping[str, tuple[str, str]] = {
    # column: heading, and what is better
    "drifted_f1": ("drifted F1", "high"),
    "stationary_f1": ("stationary F1", "high"),
    "final_drifted_f1": ("drifted F1, last round", "high"),
    "final_stationary_f1": ("stationary F1, last round", "high"),
    "final_accuracy": ("accuracy, last round", "high"),
    "final_auc_roc": ("AUC-ROC, last round", "high"),
    "ari": ("ARI of cohorts", "high"),
    "n_cohorts": ("cohorts", ""),
    "detector_recall": ("drifts flagged", ""),
    "false_alarm_rate": ("false alarms", ""),
    "bytes_up": ("MB up", "low"),
    "bytes_down": ("MB down", "low"),
    "seconds": ("seconds", ""),
}

_DIGITS = {"n_cohorts": 1, "bytes_up": 1, "bytes_down": 1, "seconds": 1}
_OF_FLAGS = frozenset({"detector_recall", "false_alarm_rate"})
_ALWAYS_SENT = frozenset({"weights", "examples"})
_LANDMARKS = (OURS, "fedavg", "local", "oracle")
_MAX_CURVES = 8
"""Of one picture, the number of colours that stay apart."""
_NOT_RANKED = frozenset({"oracle"})
"""Knows the truth: it is a bound, not a rival."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison's results and what they were made with.

    Parameters
    ----------
    results : tuple of CellResult
        Each cell once.
    failed : mapping of Cell to str
        Cells without a result, and why.
    command : str
        Makes it again.
    version : str
        Of the library.
    made_at : str
        Date and time, for people.
    requires : mapping of method to set of str
        What its clients have to share, as ``privacy.share`` names it; empty where it is not known.
    """

    results: tuple[CellResult, ...]
    failed: Mapping[Cell, str]
    command: str
    version: str
    made_at: str
    requires: Mapping[str, Set[str]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[CellRow, ...]:
        """The figures of all cells."""
        return tuple(result.row for result in self.results)

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods, as a table lists them."""
        cells = [*(r.cell for r in self.results), *self.failed]
        return in_reading_order(cell.method for cell in cells)

    @property
    def scenarios(self) -> tuple[str, ...]:
        """All scenarios that have a result, in the order of the request."""
        return tuple(dict.fromkeys(row.scenario for row in self.rows))


def comparison_sections(comparison: Comparison) -> list[Section]:
    """Lay a comparison out.

    Parameters
    ----------
    comparison : Comparison

    Raises
    ------
    InvalidConfigError
        If a cell is there twice.
    """
    check_unique(comparison.rows)
    sections = [_how(comparison)]
    if len(comparison.scenarios) > 1:
        sections.append(_overall(comparison))
    if comparison.rows:
        sections.append(_differences(comparison))
        sections += [_scenario(comparison, name) for name in comparison.scenarios]
    if comparison.requires:
        sections.append(_requires(comparison))
    if comparison.failed:
        sections.append(_failed(comparison))
    return sections


def _how(comparison: Comparison) -> Section:
    rows = comparison.rows
    counts = (
        f"{len(rows)} cells of {len(rows) + len(comparison.failed)}: "
        f"{_counted(comparison.scenarios, 'scenario')}, {_counted(comparison.methods, 'method')}, "
        f"seeds {_listed(sorted({row.seed for row in rows}))}."
    )
    meaning = (
        "F1 is the macro-F1 of the model that a client is served after a round, on held-out data "
        "of its own current concept, mean over the rounds from 4 on; drifted clients are those "
        "that drift at some time. Shown is the mean ± standard deviation over seeds."
    )
    made = f"clma {comparison.version}, {comparison.made_at}."
    return Section("How it was made", (counts, meaning, made), code=comparison.command)


def _overall(comparison: Comparison) -> Section:
    text = (
        "Mean over scenarios for each seed, then over seeds. Methods are only comparable here "
        "where they have the same number of cells."
    )
    table = _figures_table(comparison, comparison.rows)
    return Section("All scenarios", (text,), tables=(table,))


def _scenario(comparison: Comparison, name: str) -> Section:
    rows = [row for row in comparison.rows if row.scenario == name]
    pictures = [_curves(comparison, name, drifting=drifting) for drifting in (True, False)]
    # Of a single scenario they stand above already.
    several = len(comparison.scenarios) > 1
    differences = _difference_tables(rows, comparison.methods) if several else ()
    return Section(
        name,
        tables=(_figures_table(comparison, rows), *differences),
        pictures=tuple(p for p in pictures if p is not None),
    )


def _differences(comparison: Comparison) -> Section:
    text = (
        f"{OURS} minus each method on the same scenario and seed, in pairs; cells that one of both "
        "lacks are left out. Mean and standard deviation are over seeds, of the mean over a seed's "
        "scenarios; the interval is the 95 % interval of the mean over seeds (Student's t). Bold "
        "are differences whose interval leaves zero out; nothing is corrected for their number."
    )
    tables = _difference_tables(comparison.rows, comparison.methods)
    if not tables:
        return Section("Paired differences", (f"There is nothing to compare {OURS} with.",))
    pictures = tuple(
        Picture(
            png_bytes(difference_chart(found, ours=OURS, title=title)),
            f"{title}: {OURS} minus each method",
        )
        for figure, title in _COMPARED.items()
        if (found := _found(comparison.rows, comparison.methods, figure))
    )
    return Section("Paired differences", (text,), tables=tables, pictures=pictures)


def _figures_table(comparison: Comparison, rows: Sequence[CellRow]) -> Table:
    by_method = {m: [row for row in rows if row.method == m] for m in comparison.methods}
    n_cells = max(len(picked) for picked in by_method.values())
    flagless = {m for m, requires in comparison.requires.items() if "flag" not in requires}
    columns = [
        _column({m: () if f in _OF_FLAGS and m in flagless else r for m, r in by_method.items()}, f)
        for f in _FIGURES
    ]
    columns.append([Mark(f"{len(picked)}/{n_cells}") for picked in by_method.values()])
    headings = tuple(heading for heading, _ in _FIGURES.values())
    lines = zip([Mark(m) for m in by_method], *columns, strict=True)
    return Table(("method", *headings, "cells"), tuple(lines), ours=OURS)


def _column(by_method: Mapping[str, Sequence[CellRow]], figure: str) -> list[Mark]:
    found = {m: figure_of(rows, figure) for m, rows in by_method.items()}
    scale = 1e-6 if figure.startswith("bytes") else 1.0
    digits = _DIGITS.get(figure, 3)
    means = {
        m: round(s.mean * scale, digits) for m, s in found.items() if s and m not in _NOT_RANKED
    }
    better = {"high": max, "low": min}.get(_FIGURES[figure][1])
    best = better(means.values()) if better and len(set(means.values())) > 1 else None
    marks = []
    for method, value in found.items():
        if value is None:
            marks.append(Mark("-"))
            continue
        sd = "" if value.sd is None else f" ± {value.sd * scale:.{digits}f}"
        is_best = best is not None and means.get(method) == best
        marks.append(Mark(f"{value.mean * scale:.{digits}f}{sd}", best=is_best))
    return marks


def _difference_tables(rows: Sequence[CellRow], methods: Sequence[str]) -> tuple[Table, ...]:
    header = ("against", "mean", "sd", "95 % interval", "pairs", "won", "lost")
    return tuple(
        Table(header, tuple(_line(m, d) for m, d in found.items()), f"{OURS} minus ...: {title}")
        for figure, title in _COMPARED.items()
        if (found := _found(rows, methods, figure))
    )


def _found(
    rows: Sequence[CellRow], methods: Sequence[str], figure: str
) -> dict[str, PairedDifference]:
    others = [m for m in methods if m != OURS]
    found = {m: paired_difference(rows, OURS, m, figure) for m in others}
    return {m: d for m, d in found.items() if d is not None}


def _line(method: str, difference: PairedDifference) -> tuple[Mark, ...]:
    low, high = difference.low, difference.high
    interval = "-" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"
    sign = 1 if low is not None and low > 0 else -1 if high is not None and high < 0 else 0
    return (
        Mark(method),
        Mark(f"{difference.mean:+.3f}", sign=sign),
        Mark("-" if difference.sd is None else f"{difference.sd:.3f}"),
        Mark(interval),
        Mark(str(difference.n_pairs)),
        Mark(str(difference.n_won)),
        Mark(str(difference.n_lost)),
    )


def _curves(comparison: Comparison, scenario: str, *, drifting: bool) -> Picture | None:
    series = {
        method: curve_of(
            (
                (result.row.seed, row)
                for result in comparison.results
                if (result.row.scenario, result.row.method) == (scenario, method)
                for row in result.rounds
            ),
            drifting=drifting,
        )
        for method in comparison.methods
    }
    series = _best_known({method: curve for method, curve in series.items() if curve})
    if not series:
        return None
    title = f"{scenario}: {'drifting' if drifting else 'stationary'} clients"
    return Picture(png_bytes(metric_curves(series, title=title, label="macro-F1")), title)


def _best_known(series: Mapping[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """Return as many curves as can be told apart: the landmarks, then those with the highest."""
    landmarks = [m for m in series if m in _LANDMARKS]
    others = sorted(
        (m for m in series if m not in _LANDMARKS), key=lambda m: -fmean(series[m].values())
    )
    shown = {*landmarks, *others[: max(0, _MAX_CURVES - len(landmarks))]}
    return {method: curve for method, curve in series.items() if method in shown}


def _requires(comparison: Comparison) -> Section:
    rows = tuple(
        (Mark(m), Mark(", ".join(sorted(comparison.requires[m] - _ALWAYS_SENT)) or "nothing"))
        for m in comparison.methods
        if m in comparison.requires
    )
    text = (
        "What a method needs to leave a client beside weights and number of examples. Where that "
        "is no drift flag, flags lead nowhere and are not counted."
    )
    return Section("What clients send", (text,), tables=(Table(("method", "also sends"), rows),))


def _failed(comparison: Comparison) -> Section:
    rows = tuple((Mark(cell.shown), Mark(why)) for cell, why in comparison.failed.items())
    text = "The same command runs these again, and no other."
    return Section("Failed cells", (text,), tables=(Table(("cell", "why"), rows),))


def _counted(things: Sequence[str], word: str) -> str:
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"


def _listed(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))
