from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.ledger import inbox
from clma.ledger.keys import inbox_prefix
from clma.night import close_round
from clma.parameters.tensor_file import TensorFile
from tests.fuzz.campaign import MUTATIONS, attempt_of, make_federation, run_campaign
from tests.fuzz.mutate import MAX_RSS_MB, MAX_SECONDS, holds
from tests.fuzz.submission import Submission, honest

HONEST = ("honest-0", "honest-1", "honest-2")
REFUSED = sorted(k for k in MUTATIONS if not k.endswith(("same-otherwise", "crowd")))
TAKEN = sorted(set(MUTATIONS) - set(REFUSED))


def night_with(folder: Path, submission: Submission | None) -> dict[str, Any]:
    """Return what a night decides on the honest clients when somebody else sends something."""
    folder.mkdir()
    federation = make_federation(folder, [*HONEST, "plant-0"])
    place = Path(federation.store.url) / inbox_prefix(1)
    base_digest = federation.state().cohorts["c0"].model_digest
    for i, client_id in enumerate(HONEST):
        honest(client_id, base_digest, np.random.default_rng(i)).write(place)
    if submission is not None:
        submission.write(place)

    decision = close_round(federation, now=federation.state().deadline).decision

    tables = (decision.updates, decision.drift, decision.cohorting, decision.assignments)
    rows = [r for table in tables for r in table if r.client_id.startswith("honest")]
    return {
        "rows": [{**dataclasses.asdict(r), "received_at": None} for r in rows],
        "models": {c.cohort_id: c.model_digest for c in decision.cohorts},
    }


def spoiled(kind: str, folder: Path) -> tuple[Submission, Submission]:
    """Return plant-0's update before and after a mutation."""
    federation = make_federation(folder, ["plant-0"])
    good = honest(
        "plant-0", federation.state().cohorts["c0"].model_digest, np.random.default_rng(7)
    )
    return good, MUTATIONS[kind](good, np.random.default_rng(8))


@pytest.fixture(scope="module")
def night_without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return night_with(tmp_path_factory.mktemp("without") / "fleet", None)


@pytest.mark.slow
def test_two_thousand_spoiled_files_are_refused_with_a_reason() -> None:
    tally = run_campaign(2_000, seed=20_260_105)

    assert tally.faults == []
    assert set(tally.kinds) == set(MUTATIONS)
    assert tally.n_refused + tally.n_equivalent + tally.n_identical == 2_000
    assert tally.max_rss_mb < MAX_RSS_MB


@pytest.mark.parametrize("kind", REFUSED)
def test_a_bad_client_changes_nothing_for_the_others(
    tmp_path: Path, night_without: dict[str, Any], kind: str
) -> None:
    _, bad = spoiled(kind, tmp_path)
    assert night_with(tmp_path / "fleet", bad) == night_without


@pytest.mark.parametrize("kind", TAKEN)
def test_the_same_said_otherwise_counts_the_same(tmp_path: Path, kind: str) -> None:
    good, otherwise = spoiled(kind, tmp_path)
    plain = night_with(tmp_path / "plain", good)
    assert night_with(tmp_path / "otherwise", otherwise) == plain


def test_a_number_makes_the_same_file_again() -> None:
    one, two = (attempt_of(12, 3, "ab" * 32) for _ in range(2))
    assert (one.kind, one.sent.tensors, one.sent.message()) == (
        two.kind,
        two.sent.tensors,
        two.sent.message(),
    )


def test_a_gate_that_looks_at_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "check_tensors", lambda *args, **kwargs: None)
    tally = run_campaign(len(MUTATIONS), seed=1)
    assert any("not refused" in fault for fault in tally.faults)


def test_a_gate_that_raises_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TensorFile, "blocks", lambda *args: 1 / 0)
    tally = run_campaign(len(MUTATIONS), seed=1)
    assert tally.n_crashes > 0
    assert not holds(tally)


def test_a_gate_that_is_slow_is_found_out() -> None:
    tally = run_campaign(1, seed=1)
    assert holds(tally)
    tally.max_seconds = MAX_SECONDS + 0.1
    assert not holds(tally)
