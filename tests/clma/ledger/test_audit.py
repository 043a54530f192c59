from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from clma.errors import ClmaError, DamagedStoreError
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

    # Configuration, two models, sealed record, five tables, one update, two checkpoints.
    assert (report.n_entries, report.n_artifacts, report.problems) == (5, 12, ())


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


def test_a_missing_head_is_a_problem(federation: Federation) -> None:
    federation.store.delete("head.json")

    (problem,) = audit(Federation.open(federation.store.url)).problems

    assert problem.startswith("head.json is missing")


def damaged(folder: Path, rng: np.random.Generator) -> str:
    """Edit, cut or swap what the ledger names, at random; say what was done."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "inbox" not in p.parts)
    one, two = (files[i] for i in rng.choice(len(files), 2, replace=False))
    data = bytearray(one.read_bytes())
    if data == two.read_bytes():  # the operator's copy of the configuration: no edit at all
        return damaged(folder, rng)
    place = int(rng.integers(len(data)))
    what = str(rng.choice(["flip", "cut", "grow", "delete", "swap"]))
    if what == "flip":
        data[place] ^= 1 << int(rng.integers(8))
        one.write_bytes(data)
    elif what == "cut":
        one.write_bytes(data[:place])
    elif what == "grow":
        one.write_bytes(data + rng.bytes(1))
    elif what == "delete":
        one.unlink()
    else:
        one.write_bytes(two.read_bytes())
        two.write_bytes(data)
    return f"{what} {one.relative_to(folder)} {two.relative_to(folder)}"


def is_found(folder: Path) -> bool:
    try:
        return bool(audit(Federation.open(folder)).problems)
    except ClmaError:
        return True


def test_200_of_200_random_edits_cuts_and_swaps_are_found(tmp_path: Path) -> None:
    made = make_fleet(tmp_path / "store", tmp_path)
    for client_id in ("p0", "p1"):
        drop(made, client_id)
    outcome = run(made, made.seal_round(now=DUE))
    made.commit_round(outcome.decision, outcome.state)
    made.open_round(now=DUE)
    rng = np.random.default_rng(0)

    missed = []
    for attempt in range(200):
        copy = tmp_path / f"copy-{attempt}"
        shutil.copytree(made.store.url, copy)
        what = damaged(copy, rng)
        missed += [] if is_found(copy) else [what]
        shutil.rmtree(copy)

    assert missed == []
