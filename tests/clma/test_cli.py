from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clma import __version__
from clma.cli import main
from tests.clma.ledger.fleet import model, written

Capture = pytest.CaptureFixture[str]


class Shell:
    """Runs commands against one store and keeps what they print."""

    def __init__(self, folder: Path, capture: Capture) -> None:
        self.folder = folder
        self.capture = capture
        written(folder / "base.safetensors", model())
        (folder / "plants.txt").write_text("plant-a\n\nplant-b\n")

    def run(self, *words: str, wanted: int = 0) -> str:
        where = ["--store", str(self.folder / "store"), "--federation", "north"]
        with pytest.raises(SystemExit) as caught:
            main([*words, *where])
        self.out, self.err = self.capture.readouterr()
        assert (caught.value.code or 0) == wanted, self.err
        return self.out

    def json(self, *words: str, wanted: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.run(*words, "--json", wanted=wanted)))

    def init(self) -> dict[str, Any]:
        model_file, plants = self.folder / "base.safetensors", self.folder / "plants.txt"
        return self.json("init", "--model", str(model_file), "--clients", str(plants))

    def send(self, *words: str, wanted: int = 0) -> dict[str, Any]:
        path = written(self.folder / "trained.safetensors", model(0.5))
        update = ["--update", str(path), "--examples", "10"]
        return self.json("client", "submit", "--client", "plant-a", *update, *words, wanted=wanted)


@pytest.fixture
def shell(tmp_path: Path, capsys: Capture) -> Shell:
    return Shell(tmp_path, capsys)


def test_init_makes_a_federation_with_its_first_round_open(shell: Shell) -> None:
    made = shell.init()

    assert (made["federation"], made["round"], made["n_clients"]) == ("north", 1, 2)
    assert shell.json("status")["phase"] == "open"


def test_init_goes_on_where_it_was_interrupted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("clma.cli.given_moves", _killed)
        with pytest.raises(RuntimeError, match="killed"):
            shell.init()

    assert shell.init()["round"] == 1


def _killed(*_: object) -> None:
    raise RuntimeError("killed")


def test_init_warns_of_a_disk_that_is_too_small(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**6))

    shell.init()

    assert "warning: 1.0 MB are free" in shell.err


def test_ids_may_come_from_stdin(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x\ny\n"))
    model_file = str(shell.folder / "base.safetensors")

    shell.run("init", "--model", model_file, "--clients", "-")

    assert [c["client_id"] for c in shell.json("status")["clients"]] == ["x", "y"]


def test_settings_go_over_the_preset(shell: Shell) -> None:
    model_file = str(shell.folder / "base.safetensors")
    settings = ["--set", "round.quorum=2", "--set", "round.hours_open=1.5"]
    shell.run("init", "--model", model_file, "--preset", "fedavg", *settings)

    text = (shell.folder / "store/federation.toml").read_text()
    assert "quorum = 2" in text
    assert 'method = "single"' in text


@pytest.mark.parametrize(
    "words", [["--preset", "nope"], ["--set", "round.quorum=0"], ["--set", "x"]]
)
def test_a_wrong_setting_is_wrong_usage(shell: Shell, words: list[str]) -> None:
    shell.run("init", "--model", str(shell.folder / "base.safetensors"), *words, wanted=2)

    assert not (shell.folder / "store").exists()


def test_a_plant_pulls_and_submits(shell: Shell) -> None:
    shell.init()
    out = shell.folder / "m.safetensors"

    pulled = shell.json("client", "pull", "--client", "plant-a", "--out", str(out))
    sent = shell.send("--drift")

    assert (pulled["round"], pulled["path"]) == (1, str(out))
    assert (sent["round"], sent["duplicate"]) == (1, False)
    submitted = {c["client_id"]: c["submitted"] for c in shell.json("status")["clients"]}
    assert submitted == {"plant-a": True, "plant-b": False}


def test_a_refused_update_names_its_reason_on_one_line(shell: Shell) -> None:
    shell.init()
    path = written(shell.folder / "bad.safetensors", model(head__bias=None))
    words = ["--client", "plant-a", "--update", str(path), "--examples", "1"]

    shell.run("client", "submit", *words, wanted=1)

    assert shell.out == ""
    assert shell.err.startswith(
        "clma: NAMES_MISMATCH: client 'plant-a': missing tensors: head.bias"
    )
    assert shell.err.count("\n") == 1


def test_what_was_not_sent_is_said_on_stderr(shell: Shell) -> None:
    shell.init()
    shell.send("--loss", "0.5")

    assert "the loss was not sent" in shell.err


@pytest.mark.parametrize("command", ["status", "verify"])
def test_an_empty_folder_is_one_line_and_a_hint(shell: Shell, command: str) -> None:
    shell.run(command, wanted=1)

    assert "holds no federation; make one with 'clma init'" in shell.err
    assert shell.err.count("\n") == 1


def test_status_is_readable_on_a_terminal(shell: Shell) -> None:
    shell.init()

    assert "plant-b" in shell.run("status")


def test_verify_finds_what_was_touched(shell: Shell) -> None:
    digest = shell.init()["base_digest"]
    assert shell.json("verify") == {"n_artifacts": 2, "n_entries": 2, "ok": True, "problems": []}

    (shell.folder / f"store/models/{digest}.safetensors").write_bytes(b"touched")

    report = shell.json("verify", wanted=1)
    assert not report["ok"]
    assert digest in report["problems"][0]


def test_a_missing_option_is_wrong_usage(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["status"])
    assert caught.value.code == 2
    assert "--store" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["init"], ["client", "pull"], ["client", "submit"], ["status"], ["verify"]]
)
def test_every_help_ends_with_an_example(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert f"Example: clma {' '.join(words)} --store" in " ".join(capsys.readouterr().out.split())


def test_the_version_is_shown(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"clma {__version__}\n"
