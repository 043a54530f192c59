from __future__ import annotations

from collections.abc import Mapping

import pytest
from matplotlib.figure import Figure

from clma.errors import EmptyCohortError
from clma.records import ClientStatus
from clma.report.figures import MAX_ROUNDS, OKABE_ITO, png_bytes
from clma.report.heatmap import MAX_CLIENTS, _text_color, cohort_heatmap, shown_clients
from clma.rows import AssignmentRow, DriftRow

ACTIVE = ClientStatus.ACTIVE


def history(
    cohorts: Mapping[str, str], *, status: ClientStatus = ACTIVE
) -> dict[int, list[AssignmentRow]]:
    """Return rounds from the cohorts of each client, one digit a round."""
    n_rounds = max(len(path) for path in cohorts.values())
    return {
        r + 1: [
            AssignmentRow(c, "c0", f"c{path[r]}", status, "ab", 0) for c, path in cohorts.items()
        ]
        for r in range(n_rounds)
    }


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def marks(figure: Figure) -> list[str]:
    legend = figure.axes[0].get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_a_small_fleet_is_written_out() -> None:
    figure = cohort_heatmap(history({"p0": "000", "p1": "011"}), {}, title="pumps")

    assert texts(figure) == ["c0", "c0", "c0", "c0", "c1", "c1"]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["p0", "p1"]


def test_a_large_fleet_names_each_block_and_thins_its_clients() -> None:
    fleet = {f"p{n:03d}": "000000" if n % 2 else "001111" for n in range(200)}
    figure = cohort_heatmap(history(fleet), {}, title="pumps")

    assert sorted(set(texts(figure))) == ["c0", "c1"]
    assert len(texts(figure)) <= 4
    assert len(figure.axes[0].get_yticklabels()) <= 60


def test_drift_quarantine_and_silence_are_marked() -> None:
    drift = {1: [DriftRow("p0", "c0", drift_flag=True), DriftRow("p1", "c0", drift_flag=False)]}
    quarantined = history({"p0": "0"}, status=ClientStatus.QUARANTINED)
    missing = history({"p0": "0"}, status=ClientStatus.MISSING)

    assert marks(cohort_heatmap(quarantined, drift, title="x")) == ["drift flag", "quarantined"]
    assert marks(cohort_heatmap(missing, {}, title="x")) == ["nothing sent"]
    assert marks(cohort_heatmap(history({"p0": "0"}), {}, title="x")) == []


def test_a_client_that_joined_later_is_empty_before() -> None:
    assignments = history({"p0": "00"})
    assignments[2].append(AssignmentRow("p1", "c0", "c0", ACTIVE, "ab", 2))

    assert texts(cohort_heatmap(assignments, {}, title="pumps")) == ["c0", "c0", "c0"]


def test_only_the_newest_rounds_are_shown() -> None:
    figure = cohort_heatmap(history({"p0": "0" * (MAX_ROUNDS + 5)}), {}, title="pumps")

    assert len(texts(figure)) == MAX_ROUNDS


@pytest.mark.parametrize("color", OKABE_ITO)
def test_text_is_black_or_white_on_every_colour(color: str) -> None:
    assert _text_color(color) in {"black", "white"}


def test_text_is_white_on_dark_and_black_on_light() -> None:
    assert (_text_color("#000000"), _text_color("#FFFFFF")) == ("white", "black")


def test_a_picture_comes_out() -> None:
    assert png_bytes(cohort_heatmap(history({"p0": "01"}), {}, title="pumps")).startswith(
        b"\x89PNG"
    )


def test_an_empty_history_is_an_error() -> None:
    with pytest.raises(EmptyCohortError, match="no client in any round"):
        cohort_heatmap({1: []}, {}, title="pumps")


def test_a_fleet_without_end_is_drawn_in_part() -> None:
    paths = {f"p{i:05d}": "00" for i in range(3 * MAX_CLIENTS)} | {"p00007": "01"}
    drift = {2: [DriftRow("p00011", "c0", drift_flag=True)]}

    figure = cohort_heatmap(history(paths), drift, title="pumps")

    assert figure.axes[0].get_title(loc="left") == "pumps (1,000 of 3,000 clients)"
    assert figure.axes[0].images[0].get_array().shape == (MAX_CLIENTS, 2)
    assert (texts(figure), marks(figure)) == (["c0", "c1"], ["drift flag"])


def test_clients_with_something_to_tell_are_shown_first() -> None:
    clients = {f"p{i:05d}" for i in range(2 * MAX_CLIENTS)}

    shown = shown_clients(clients, {"p01999", "p01001"})

    assert len(shown) == MAX_CLIENTS
    assert {"p01999", "p01001"} < shown
    assert shown_clients(clients, clients) == frozenset(sorted(clients)[::2])
    assert shown_clients(shown, set()) == shown
