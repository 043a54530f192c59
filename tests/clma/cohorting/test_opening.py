from __future__ import annotations

from pathlib import Path

import pytest

from clma.cohorting.opening import opening_moves
from clma.config import preset_config
from clma.errors import InvalidConfigError
from clma.night import close_round, open_next_round
from clma.records import Phase
from clma.signatures.signature import Signature
from tests.clma.ledger.fleet import DUE, NOW, make_fleet
from tests.clma.shelf import Shelf, one_cohort

SHARE = {"share": ["weights", "examples", "signature"]}


def never(client_id: str, round_num: int) -> Signature:
    raise AssertionError(f"asked for the signature of {client_id} in round {round_num}")


@pytest.mark.parametrize("preset", ["pacfl", "fecfl"])
def test_method_without_its_signatures_is_refused(shelf: Shelf, preset: str) -> None:
    state = one_cohort("m0", ["p1"], round_num=0)
    config = preset_config("test", preset, privacy=SHARE)

    with pytest.raises(InvalidConfigError, match=f"'{preset}' needs signatures"):
        opening_moves(state, config, 1, open_tensors=shelf.open, save_model=shelf.save)


@pytest.mark.parametrize("preset", ["clma", "fedavg", "local"])
def test_other_methods_ask_for_no_signature(shelf: Shelf, preset: str) -> None:
    opening_moves(
        one_cohort("m0", ["p1"], round_num=0),
        preset_config("test", preset),
        1,
        open_tensors=shelf.open,
        save_model=shelf.save,
        signature_of=never,
    )


def test_round_is_not_sealed_where_the_next_one_could_not_open(tmp_path: Path) -> None:
    federation = make_fleet(
        tmp_path / "store", tmp_path, cohorting={"method": "pacfl"}, privacy=SHARE
    )

    with pytest.raises(InvalidConfigError, match="needs signatures"):
        close_round(federation, now=DUE)
    assert federation.state().phase is Phase.OPEN


def test_first_round_is_not_opened_either(tmp_path: Path) -> None:
    federation = make_fleet(
        tmp_path / "store", tmp_path, opened=False, cohorting={"method": "pacfl"}, privacy=SHARE
    )

    with pytest.raises(InvalidConfigError, match="needs signatures"):
        open_next_round(federation, now=NOW)
    assert federation.state().phase is Phase.CREATED
