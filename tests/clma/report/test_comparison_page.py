from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from clma.errors import InvalidConfigError
from clma.report.comparison_page import Comparison, comparison_sections
from clma.report.page import Mark, Section, Table, to_html, to_markdown
from clma.simulation.cells import Cell, RoundRow
from tests.clma.report.rows import result, row


def comparison(*rows: tuple[str, int, float], scenarios: tuple[str, ...] = ("a",)) -> Comparison:
    rounds = (RoundRow(1, "p", True, 0.5, "c0", None),)
    made = [result(row(m, s, f1, scenario=n), rounds) for n in scenarios for m, s, f1 in rows]
    return Comparison(tuple(made), {}, "python -m flows.compare", "1.0", "today")


BOTH = (("fedavg", 0, 0.5), ("clma", 0, 0.7), ("fedavg", 1, 0.5), ("clma", 1, 0.6))


def titles(made: Comparison) -> list[str]:
    return [section.title for section in comparison_sections(made)]


def lines(section: Section, table: int = 0) -> list[tuple[str, str]]:
    """Return the first two columns of a table."""
    return [(line[0].text, line[1].text) for line in section.tables[table].rows]


def test_every_method_has_a_line_with_ours_first() -> None:
    section = comparison_sections(comparison(*BOTH))[-1]

    assert lines(section) == [("clma", "0.650 ± 0.071"), ("fedavg", "0.500 ± 0.000")]
    assert [[mark.best for mark in line][1] for line in section.tables[0].rows] == [True, False]


def test_a_single_scenario_is_not_told_twice() -> None:
    assert titles(comparison(*BOTH)) == ["How it was made", "Paired differences", "a"]


def test_several_scenarios_have_a_table_each_and_one_together() -> None:
    made = comparison(*BOTH, scenarios=("a", "b"))
    assert titles(made) == ["How it was made", "All scenarios", "Paired differences", "a", "b"]


def test_the_difference_against_every_other_method_is_told() -> None:
    section = comparison_sections(comparison(*BOTH, ("cfl", 0, 0.9)))[1]
    assert lines(section) == [("fedavg", "+0.150"), ("cfl", "-0.200")]


def test_the_oracle_is_a_bound_and_never_the_best() -> None:
    section = comparison_sections(comparison(*BOTH, ("oracle", 0, 0.99)))[-1]
    assert [line[0].text for line in section.tables[0].rows if line[1].best] == ["clma"]


def test_failed_cells_are_named_with_the_reason() -> None:
    failed = {Cell("a", "cfl", 3): "out of memory"}
    section = comparison_sections(dataclasses.replace(comparison(*BOTH), failed=failed))[-1]

    assert lines(section) == [("a cfl seed 3", "out of memory")]


def test_a_comparison_of_which_nothing_is_left_names_what_failed() -> None:
    made = Comparison((), {Cell("a", "cfl", 3): "no data"}, "", "1.0", "today")
    assert titles(made) == ["How it was made", "Failed cells"]


REQUIRES = {"clma": {"weights", "examples", "flag"}, "fedavg": {"weights", "examples"}}


def test_what_methods_send_is_told_where_it_is_known() -> None:
    made = dataclasses.replace(comparison(*BOTH), requires=REQUIRES)
    assert lines(comparison_sections(made)[-1]) == [("clma", "flag"), ("fedavg", "nothing")]


def test_flags_of_a_method_that_does_not_follow_them_are_not_counted() -> None:
    made = dataclasses.replace(comparison(*BOTH), requires=REQUIRES)
    table = comparison_sections(made)[-2].tables[0]
    column = table.header.index("false alarms")

    assert [line[column].text for line in table.rows] == ["0.250 ± 0.000", "-"]


def test_a_cell_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="2 rows, wanted 1"):
        comparison_sections(comparison(*BOTH, BOTH[0]))


class Outside(HTMLParser):
    """Collects whatever a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        places = [value or "" for name, value in attrs if name in {"src", "href"}]
        self.found += [p for p in places if not p.startswith(("data:image/png;base64,", "#"))]
        self.found += [tag] if tag in {"script", "link", "iframe"} else []


def test_the_page_loads_nothing_from_elsewhere() -> None:
    page = to_html("title", comparison_sections(comparison(*BOTH)))
    reader = Outside()
    reader.feed(page)

    assert reader.found == []
    assert "data:image/png;base64," in page
    assert not re.search(r"url\(|@import", page)


def test_names_from_outside_are_text_and_never_markup() -> None:
    table = Table(("<b>", "n"), ((Mark("<script>|"), Mark("1")),))
    sections = [Section("<i>", ("a & b",), code="<c>", tables=(table,))]

    page, text = to_html("<t>", sections), to_markdown("t", sections)

    assert not re.search("<(b|script|i|c|t)>", page)
    assert "&lt;script&gt;|" in page
    assert "| <script>\\| | 1 |" in text
