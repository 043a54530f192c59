from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clma.errors import InvalidConfigError
from tasks.tracking import registered_model_name, resolve_tracking, split_model_name

TEXT = st.text(min_size=1, max_size=40).filter(lambda t: t.isprintable())


@given(TEXT, TEXT)
def test_model_names_can_be_read_back(federation: str, cohort_id: str) -> None:
    """Hence no two cohorts share a name."""
    name = registered_model_name(federation, cohort_id)

    assert split_model_name(name) == (federation, cohort_id)
    assert not set(name) & set("/:")


def test_plain_names_stay_as_they_are() -> None:
    assert registered_model_name("north.sea-1", "c2") == "north.sea-1.c2"


def test_refused_characters_are_written_as_bytes() -> None:
    assert registered_model_name("Nord/See:2", "c1") == "Nord=2FSee=3A2.c1"


@pytest.mark.parametrize("name", ["", "no-dot", ".c1", "a.", "a=2.c1", "a=41.c1", "a=FF.c1"])
def test_names_that_are_not_ours_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"wanted <federation>.<cohort>"):
        split_model_name(name)


def test_tracking_lives_in_mlruns_unless_told(tmp_path: Path) -> None:
    tracking = resolve_tracking(tmp_path)

    assert tracking.uri == f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    assert tracking.artifacts == f"file://{tmp_path}/mlruns/artifacts"


def test_a_relative_database_lies_below_the_root(tmp_path: Path) -> None:
    tracking = resolve_tracking(tmp_path, "sqlite:///track/runs.db")

    assert tracking.uri == f"sqlite:///{tmp_path}/track/runs.db"
    assert tracking.artifacts == f"file://{tmp_path}/track/artifacts"


def test_an_absolute_database_stays_where_it_is(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/a/runs.db"

    assert resolve_tracking(tmp_path / "b", uri).uri == uri


def test_a_server_decides_about_its_artifacts(tmp_path: Path) -> None:
    tracking = resolve_tracking(tmp_path, "http://127.0.0.1:5000")

    assert (tracking.uri, tracking.artifacts) == ("http://127.0.0.1:5000", None)


@pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "file:./mlruns", "file:///tmp/mlruns", ""])
def test_a_folder_of_runs_is_refused_with_a_hint(uri: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"use sqlite:///mlruns/mlflow.db"):
        resolve_tracking(tmp_path, uri)


def test_an_unknown_scheme_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="scheme 'ftp'"):
        resolve_tracking(tmp_path, "ftp://runs")
