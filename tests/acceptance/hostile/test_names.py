"""Names that want to be a path, a command or markup: of plants, tensors, folders and links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from clma.client import submit
from clma.config import preset_config
from clma.errors import InvalidConfigError, UnknownClientError
from clma.ledger.federation import Federation
from clma.ledger.keys import inbox_prefix
from clma.parameters.tensor_file import serialize_tensors
from clma.round import RoundOutcome
from tests.acceptance.hostile.fleet import (
    CLIENTS,
    NAME,
    command,
    decided,
    found,
    message_of,
    night,
    night_without,
    row_of,
    send,
    send_good,
    trained,
    verdicts,
)

HOSTILE = [
    "../../etc/cron.d/x",
    "/abs",
    "a/b",
    "..",
    ".",
    "con",
    "CON.txt",
    "x" * 300,
    "",
    "a\0b",
    "a\nb",
    "-rf",
    "%2e%2e",
    "=cmd()",
    "<script>alert(1)</script>",
    "plant-ä",
    "plant-a ",
]
ON_DISK = [name for name in HOSTILE if name.isprintable() and "/" not in name and name.strip(".")]
"""Those that a folder can be named, as a plant with its own hands on the store would."""


@contextmanager
def nothing_outside(root: Path, store: Path) -> Iterator[None]:
    """Find whatever is made or changed below `root` and not in `store`."""

    def listing() -> dict[str, tuple[int, int]]:
        paths = (p for p in root.rglob("*") if not p.is_relative_to(store))
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in paths if p.is_file()}

    before = listing()
    yield
    assert listing() == before


@pytest.fixture(scope="module")
def without_b(tmp_path_factory: pytest.TempPathFactory) -> RoundOutcome:
    return night_without(tmp_path_factory.mktemp("without"), "plant-b")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_such_plant_is_registered_or_heard(tmp_path: Path, name: str) -> None:
    federation = found(tmp_path)
    path = tmp_path / "trained.safetensors"
    path.write_bytes(serialize_tensors(trained("plant-a", 1)))

    with nothing_outside(tmp_path, tmp_path / "store"):
        with pytest.raises(UnknownClientError, match="is not allowed"):
            federation.register_client(name)
        with pytest.raises(UnknownClientError):
            submit(federation, NAME, name, tensors=path, n_examples=1, drift_flag=False)

    assert tuple(federation.state().clients) == CLIENTS


@pytest.mark.parametrize("name", HOSTILE)
def test_a_message_in_a_hostile_name_costs_its_own_vote_only(
    tmp_path: Path, without_b: RoundOutcome, name: str
) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-b"])
    send(federation, "plant-b")
    path = Path(federation.store.url) / inbox_prefix(1) / "plant-b/update.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "client_id": name}))

    with nothing_outside(tmp_path, tmp_path / "store"):
        outcome = night(federation)

    assert decided(outcome) == decided(without_b)
    row = row_of(outcome, "plant-b")
    assert row.reason == "BAD_CLIENT_ID"
    assert "\n" not in str(row.detail)
    assert "\0" not in str(row.detail)


def test_folders_of_hostile_names_are_listed_as_plain_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = found(tmp_path)
    send_good(federation)
    names = [name[:200] for name in ON_DISK]
    for name in names:
        folder = Path(federation.store.url) / inbox_prefix(1) / name
        folder.mkdir()
        (folder / "update.json").write_bytes(message_of(federation.state(), "plant-a"))

    main_exit = command("status", "--store", federation.store.url, "--federation", NAME)
    outcome = night(federation)

    assert main_exit == 0
    assert "<script>" not in capsys.readouterr().out
    assert set(verdicts(outcome).values()) == {"BAD_CLIENT_ID"}
    assert len(outcome.decision.updates) == len(CLIENTS) + len(names)
    assert all(
        r.client_id.isascii() and r.client_id.isprintable() for r in outcome.decision.updates
    )


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "..", "head.weight\n", "a\0b", "=cmd()"]
)
def test_a_tensors_name_builds_no_path(tmp_path: Path, without_b: RoundOutcome, name: str) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-b"])
    surplus = {**trained("plant-b", 1), "zz": np.ones(1, np.float32)}
    header = serialize_tensors(surplus)
    text = header.replace(b'"zz"', json.dumps(name).encode())
    length = int.from_bytes(header[:8], "little") + len(text) - len(header)
    send(federation, "plant-b", length.to_bytes(8, "little") + text[8:])

    with nothing_outside(tmp_path, tmp_path / "store"):
        outcome = night(federation)

    assert decided(outcome) == decided(without_b)
    row = row_of(outcome, "plant-b")
    assert row.reason in {"NAMES_MISMATCH", "BAD_FORMAT"}
    assert str(row.detail).isprintable()


def test_a_model_with_tensors_named_like_paths_is_a_model(tmp_path: Path) -> None:
    """The names of a model are the operator's own; they are data, and no place on a disk."""
    base = {"../../x": np.zeros(3, np.float32), "/abs": np.zeros(2, np.float32)}
    federation = found(tmp_path, base=base)

    with nothing_outside(tmp_path, tmp_path / "store"):
        send_good(federation)
        outcome = night(federation)

    assert outcome.decision.cohorts[0].n_updates == len(CLIENTS)


@pytest.mark.parametrize("link", ["folder", "tensors", "message"])
def test_a_link_that_leads_outside_is_not_followed(
    tmp_path: Path, without_b: RoundOutcome, link: str
) -> None:
    federation = found(tmp_path)
    send_good(federation)
    folder = Path(federation.store.url) / inbox_prefix(1) / "plant-b"
    name = {"folder": "", "tensors": "update.safetensors", "message": "update.json"}[link]
    outside = tmp_path / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)

    with nothing_outside(tmp_path, tmp_path / "store"):
        outcome = night(federation)

    assert decided(outcome) == decided(without_b)
    assert row_of(outcome, "plant-b").reason in {"BAD_FORMAT", "INCOMPLETE"}


@pytest.mark.parametrize("name", ["Nord/See:2", "../x", "", "a b", "x" * 65, "=cmd()"])
def test_a_hostile_name_of_a_federation_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^federation: [^\n]+$"):
        preset_config(name)


def test_a_refused_federation_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base.safetensors"
    base.write_bytes(serialize_tensors({"w": np.zeros(2, np.float32)}))
    store = tmp_path / "store"

    code = command(
        "init", "--store", str(store), "--federation", "Nord/See:2", "--model", str(base)
    )

    assert code == 2
    assert "Nord/See:2" in capsys.readouterr().err
    assert not store.exists()
    with pytest.raises(KeyError):
        Federation.open(store)
