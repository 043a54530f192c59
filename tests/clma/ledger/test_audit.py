from __future__ import annotations

from pathlib import Path

import pytest

from clma.errors import DamagedStoreError
from clma.ledger.audit import audit
from clma.ledger.federation import Federation
from clma.ledger.keys import entry_key, table_key
from tests.clma.ledger.fleet import DUE, drop, make_fleet
from tests.clma.ledger.test_federation import run


@pytest.fixture
def federation(url: str, tmp_path: Path) -> Federation:
    made = make_fleet(url, tmp_path)
    drop(made, "p0")
    outcome = run(made, made.seal_round(now=DUE))
    made.commit_round(outcome.decision, outcome.state)
    made.open_round(now=DUE)
    return made


def test_an_untouched_folder_has_no_problem(federation: Federation) -> None:
    report = audit(federation)

    # Configuration, two models, sealed record, five tables, one update.
    assert (report.n_entries, report.n_artifacts, report.problems) == (5, 10, ())


@pytest.mark.parametrize("what", ["table", "update", "model"])
def test_a_touched_artifact_is_named(federation: Federation, what: str) -> None:
    model = federation.state().cohorts["c0"].model_digest
    key = {
        "table": table_key(1, "drift"),
        "update": federation.sealed_round(1).updates[0].tensors.path,
        "model": federation.model_ref(model).path,
    }[what]
    federation.store.replace(key, b"touched")

    (problem,) = audit(Federation.open(federation.store.url)).problems

    assert problem.startswith(key)


def test_a_broken_chain_is_an_error(federation: Federation) -> None:
    federation.store.replace(entry_key(1), federation.store.get(entry_key(2)))

    with pytest.raises(DamagedStoreError, match="00000001"):
        audit(federation)
