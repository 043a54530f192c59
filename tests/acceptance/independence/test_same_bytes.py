"""What a night decides depends on its input only: not on order, threads, language or zone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from clma.ledger.federation import Federation
from clma.night import close_round
from tests.acceptance.independence.fleet import FAMILIES, WHEN, prepare

ROOT = Path(__file__).parents[3]
N_ORDERS = 8
"""Of each machine: 32 orders in all."""

MACHINES: list[Mapping[str, str]] = [
    {"threads": "1", "LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0"},
    {"threads": "2", "LC_ALL": "de_DE.UTF-8", "TZ": "Europe/Berlin", "PYTHONHASHSEED": "1"},
    {"threads": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "2"},
    {"threads": "2", "LC_ALL": "C.UTF-8", "TZ": "America/St_Johns", "PYTHONHASHSEED": "3"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("independence")
    prepare(made)
    return made


def nights_on(machine: Mapping[str, str], folder: Path, first_seed: int) -> list[str]:
    """Play nights in a process whose surroundings are those of a machine."""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    surroundings = {
        **os.environ,
        **{name: value for name, value in machine.items() if name != "threads"},
        **dict.fromkeys(variables, machine["threads"]),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.acceptance.independence.fleet"),
            *(str(folder), str(first_seed), str(N_ORDERS)),
        ],
        env=surroundings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
def test_thirty_two_orders_on_four_machines_give_one_digest(folder: Path) -> None:
    digests = [
        digest
        for number, machine in enumerate(MACHINES)
        for digest in nights_on(machine, folder, number * N_ORDERS)
    ]

    assert len(digests) == N_ORDERS * len(MACHINES)
    assert len(set(digests)) == 1


def test_the_night_that_is_compared_forms_two_cohorts(folder: Path, tmp_path: Path) -> None:
    """Without this the digest would not say much."""
    import shutil

    shutil.copytree(folder / "store", tmp_path / "store")

    state = close_round(Federation.open(tmp_path / "store"), now=WHEN).state

    assert [state.members(c) for c in ("c1", "c2")] == [
        tuple(c for c in sorted(FAMILIES) if FAMILIES[c] == family) for family in (1, 2)
    ]
