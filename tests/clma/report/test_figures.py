from __future__ import annotations

import itertools
import math

import pytest
from matplotlib.figure import Figure

from clma.errors import EmptyCohortError
from clma.records import CohortStatus
from clma.report.figures import (
    MAX_ROUNDS,
    OKABE_ITO,
    cohort_color,
    cohort_sizes,
    metric_curves,
    png_bytes,
)
from clma.rows import CohortRow, Gate


def cohort(cohort_id: str, n_members: int, status: CohortStatus = CohortStatus.ACTIVE) -> CohortRow:
    return CohortRow(cohort_id, None, 0, status, n_members, 0, 0, "ab", None, Gate.PROMOTED)


def line_values(figure: Figure) -> list[list[float]]:
    return [[float(y) for y in line.get_ydata()] for line in figure.axes[0].lines]


def names(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_neighbouring_cohorts_differ_in_colour() -> None:
    assert len({cohort_color(f"c{n}") for n in range(len(OKABE_ITO))}) == len(OKABE_ITO)


def test_every_cohort_has_its_line_and_its_name() -> None:
    figure = cohort_sizes(
        {1: [cohort("c0", 4)], 2: [cohort("c0", 3), cohort("c1", 1)]}, title="pumps"
    )

    assert line_values(figure) == [[4, 3], [1]]
    assert sorted(names(figure)) == ["c0", "c1"]


def test_a_cohort_at_rest_has_no_size() -> None:
    rows = {1: [cohort("c0", 2), cohort("c1", 0, CohortStatus.DORMANT)]}

    assert line_values(cohort_sizes(rows, title="pumps")) == [[2]]


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    figure = metric_curves({"p0": {1: 0.5, 2: math.inf, 3: 0.7}}, title="f1", label="macro-F1")

    (values,) = line_values(figure)
    assert (values[0], values[2]) == (0.5, 0.7)
    assert math.isnan(values[1])


def test_names_at_the_same_height_do_not_overlap() -> None:
    series = {f"c{n}": {1: 0.5, 2: 0.5} for n in range(4)}
    figure = metric_curves(series, title="f1", label="macro-F1")

    heights = sorted(text.xy[1] for text in figure.axes[0].texts)
    low, high = figure.axes[0].get_ylim()
    gaps = [b - a for a, b in itertools.pairwise(heights)]
    assert min(gaps) > 0.03 * (high - low)


def test_many_lines_are_told_by_their_median() -> None:
    series = {f"p{n}": {1: float(n)} for n in range(201)}
    figure = metric_curves(series, title="f1", label="macro-F1")

    assert names(figure) == []
    assert figure.axes[0].lines[-1].get_label() == "median of 201"
    assert line_values(figure)[-1] == [100.0]


def test_only_the_newest_rounds_are_shown() -> None:
    rounds = {r: float(r) for r in range(1, MAX_ROUNDS + 11)}
    (values,) = line_values(metric_curves({"p0": rounds}, title="f1", label="macro-F1"))

    assert (len(values), values[0]) == (MAX_ROUNDS, 11.0)


def test_equal_figures_are_equal_bytes() -> None:
    pictures = {
        png_bytes(metric_curves({"p0": {1: 0.5}}, title="f1", label="macro-F1")) for _ in range(2)
    }

    assert len(pictures) == 1


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(EmptyCohortError, match="no value to draw"):
        metric_curves({"p0": {}}, title="f1", label="macro-F1")
    with pytest.raises(EmptyCohortError, match="no value to draw"):
        cohort_sizes({}, title="pumps")
