from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from clma import __version__
from clma.cli import app, main
from clma.ledger.federation import Federation
from clma.updates.signing import create_key
from tests.clma.ledger.fleet import model, written
from tests.clma.ledger.refusing import refuse_with

Capture = pytest.CaptureFixture[str]


class Shell:
    """Runs commands against one store and keeps what they print."""

    def __init__(self, folder: Path, capture: Capture) -> None:
        self.folder = folder
        self.capture = capture
        written(folder / "base.safetensors", model())
        key = create_key(folder / "plant-a.key")
        (folder / "plants.txt").write_text(f"plant-a {key.public}\n\nplant-b\n")

    def run(self, *words: str, wanted: int = 0) -> str:
        where = ["--store", str(self.folder / "store"), "--federation", "north"]
        with pytest.raises(SystemExit) as caught:
            main([*words, *where])
        self.out, self.err = self.capture.readouterr()
        assert (caught.value.code or 0) == wanted, self.err
        return self.out

    def json(self, *words: str, wanted: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.run(*words, "--json", wanted=wanted)))

    def init(self, *words: str) -> dict[str, Any]:
        model_file, plants = self.folder / "base.safetensors", self.folder / "plants.txt"
        return self.json("init", "--model", str(model_file), "--clients", str(plants), *words)

    def send(self, *words: str, wanted: int = 0) -> dict[str, Any]:
        path = written(self.folder / "trained.safetensors", model(0.5))
        key = str(self.folder / "plant-a.key")
        update = ["--update", str(path), "--examples", "10", "--key", key]
        return self.json("client", "submit", "--client", "plant-a", *update, *words, wanted=wanted)


def all_commands() -> set[tuple[str, ...]]:
    """Return the words of every command."""
    group: Any = typer.main.get_command(app)
    found: set[tuple[str, ...]] = set()
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        found |= {(name,)} if below is None else {(name, sub) for sub in below}
    return found


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
        patch.setattr("clma.cli.operator.open_next_round", _killed)
        with pytest.raises(RuntimeError, match="killed"):
            shell.init()

    assert shell.init()["round"] == 1


def _killed(*_: object, **__: object) -> None:
    raise RuntimeError("killed")


SIGNED_DATA = ["--set", 'privacy.share=["weights","examples","flag","signature"]']


@pytest.mark.parametrize(
    ("preset", "setting"),
    [
        ("pacfl", "cohorting.method 'pacfl'"),
        ("fecfl", "cohorting.method 'fecfl'"),
    ],
)
def test_init_refuses_a_method_that_plants_have_no_signatures_for(
    shell: Shell, preset: str, setting: str
) -> None:
    model_file = str(shell.folder / "base.safetensors")

    shell.run("init", "--model", model_file, "--preset", preset, *SIGNED_DATA, wanted=2)

    assert f"{setting} needs signatures" in " ".join(shell.err.split())
    assert not (shell.folder / "store" / "ledger").exists()


def test_configure_refuses_it_as_well(shell: Shell) -> None:
    shell.init()

    shell.run("configure", "--set", "cohorting.method=pacfl", *SIGNED_DATA, wanted=1)

    assert "which plants cannot send" in shell.err


def test_configure_refuses_a_layer_that_the_model_lacks(shell: Shell) -> None:
    shell.init()

    shell.run("configure", "--set", "cohorting.output_layer=hat", wanted=1)

    assert "the model has no layer 'hat'" in " ".join(shell.err.split())


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


def test_init_says_who_cannot_send_yet(shell: Shell) -> None:
    shell.init()

    assert "1 of 2 clients have no key yet" in shell.err


def test_unsigned_updates_are_asked_for_in_words_and_warned_of(shell: Shell) -> None:
    model_file = str(shell.folder / "base.safetensors")
    shell.run("init", "--model", model_file, "--set", "identity.updates=unsigned")

    assert "whoever can write to the store can speak for any client" in shell.err


def test_a_client_named_twice_is_refused(shell: Shell) -> None:
    (shell.folder / "plants.txt").write_text("a\nb\na\n")
    words = [str(shell.folder / name) for name in ("base.safetensors", "plants.txt")]

    shell.run("init", "--model", words[0], "--clients", words[1], wanted=1)

    assert "line 3: client 'a' is there twice" in shell.err


def test_a_key_is_made_added_listed_and_revoked(shell: Shell) -> None:
    shell.init()
    made = keygen(shell, "plant-b")
    shell.run("key", "add", "--client", "plant-b", "--public-key", made["public_key"])
    (listed,) = shell.json("key", "list", "--client", "plant-b")["keys"]["plant-b"]
    assert (listed["key_id"], listed["revoked_round"]) == (made["key_id"], None)

    shell.run("key", "revoke", "--client", "plant-b", "--key-id", made["key_id"])

    assert f"{made['key_id']}  since round 1, revoked in round 1" in shell.run("key", "list")


def keygen(shell: Shell, client_id: str) -> dict[str, Any]:
    words = ["keygen", "--client", client_id, "--key", str(shell.folder / f"{client_id}.key")]
    with pytest.raises(SystemExit):
        main(["client", *words, "--json"])
    return dict(json.loads(shell.capture.readouterr().out))


def test_a_private_key_is_in_no_output(shell: Shell) -> None:
    """Neither where it is made or used, nor where its file is damaged."""
    shell.init()
    path = shell.folder / "plant-a.key"
    secret = "".join(path.read_text().splitlines()[1:-1])
    shown = [json.dumps(shell.send("--drift")), shell.err, json.dumps(keygen(shell, "plant-b"))]
    path.write_text(path.read_text().replace("PRIVATE KEY", "SECRET KEY"))
    shown += [shell.run("client", "submit", *submit_words(shell), wanted=1), shell.err]

    assert "no unencrypted ed25519 key" in shell.err
    assert len(secret) > 60
    assert not any(secret[i : i + 16] in "".join(shown) for i in range(0, len(secret) - 16, 8))


def submit_words(shell: Shell) -> list[str]:
    files = ["--update", str(shell.folder / "trained.safetensors"), "--examples", "1"]
    return ["--client", "plant-a", *files, "--key", str(shell.folder / "plant-a.key")]


def test_settings_are_changed_shown_and_kept_for_people(shell: Shell) -> None:
    shell.init()

    shown = shell.json("configure", "--set", "round.quorum=2")

    assert shown["changed"] == {"round.quorum": ["1", "2"]}
    assert "quorum = 2" in (shell.folder / "store/federation.toml").read_text()


def test_a_dry_run_changes_nothing(shell: Shell) -> None:
    shell.init()

    assert "round.quorum: 1 -> 2" in shell.run("configure", "--set", "round.quorum=2", "--dry-run")

    assert "no setting" in shell.run("configure")


def test_an_edited_file_is_not_in_force_until_it_is_applied(shell: Shell) -> None:
    shell.init()
    path = shell.folder / "store/federation.toml"
    path.write_text(path.read_text().replace("quorum = 1", "quorum = 2", 1))
    shell.run("status")
    assert "federation.toml was edited and is not in force" in shell.err

    assert "round.quorum: 1 -> 2" in shell.run("configure", "--apply")

    shell.run("status")
    assert shell.err == ""


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
    key = str(shell.folder / "plant-a.key")

    shell.run("client", "submit", *words, "--key", key, wanted=1)

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
    assert shell.json("verify") == {"n_artifacts": 3, "n_entries": 2, "ok": True, "problems": []}

    (shell.folder / f"store/models/{digest}.safetensors").write_bytes(b"touched")

    report = shell.json("verify", wanted=1)
    assert not report["ok"]
    assert digest in report["problems"][0]


def test_a_plant_is_forgotten_only_when_it_is_meant(shell: Shell) -> None:
    shell.init()
    shell.send()

    assert shell.json("forget", "plant-a", "--dry-run")["dry_run"]
    assert shell.json("status")["clients"][0]["client_id"] == "plant-a"

    assert "plant-a is forgotten" in shell.run("forget", "plant-a")
    assert "MLflow and Prefect, too: python -m flows.forget --store" in shell.err
    assert "plant-a" not in shell.run("status")


def test_a_missing_option_is_wrong_usage(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["status"])
    assert caught.value.code == 2
    assert "--store" in capsys.readouterr().err


@pytest.mark.parametrize("words", sorted(all_commands()), ids=" ".join)
def test_every_help_ends_with_an_example(words: tuple[str, ...], capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert f"Example: clma {' '.join(words)} " in " ".join(capsys.readouterr().out.split())


def test_the_version_is_shown(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"clma {__version__}\n"


def test_plant_chooses_a_model_and_says_so(shell: Shell, tmp_path: Path) -> None:
    share = 'privacy.share=["weights","flag","examples","choice","loss_vector"]'
    shell.init("--preset", "ifca", "--set", share)
    shell.json("client", "pull", "--client", "plant-a", "--out", str(tmp_path / "m.safetensors"))

    shell.send("--trained-from", "c2", "--losses", "c2=0.1")

    opened = Federation.open(tmp_path / "store")
    (sent,) = opened.seal_round(now=dt.datetime.now(dt.UTC), force=True).updates
    assert sent.base_digest == opened.state().cohorts["c2"].model_digest
    assert sent.losses == {sent.base_digest: 0.1}


def test_drifting_plant_is_told_when_another_model_is_better(shell: Shell, tmp_path: Path) -> None:
    shell.init(
        "--preset", "clma-probe", "--set", 'privacy.share=["weights","flag","examples","choice"]'
    )
    out = ("--out", str(tmp_path / "m.safetensors"))

    pulled = shell.json("client", "pull", "--client", "plant-a", *out, "--drifted")

    assert pulled["choice_on_drift"] is True
    assert pulled["choice_rule"] == {"ratio": 0.5, "z_score": 3.0}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--trained-from", "c9", "no choice of this client"),
        ("--losses", "c0=0.1", "no choice of this client"),
    ],
)
def test_choice_where_there_is_none_is_wrong_usage(
    shell: Shell, option: str, value: str, said: str
) -> None:
    shell.init()

    with pytest.raises(json.JSONDecodeError):
        shell.send(option, value, wanted=2)

    assert said in " ".join(shell.err.split())


SIGNS = ("--preset", "fmcl-clma", *SIGNED_DATA)


def sign(shell: Shell, *words: str, wanted: int = 0) -> dict[str, Any]:
    files = {
        "samples": np.ones((6, 2, 5)),
        "labels": np.array([0, 0, 0, 0, 0, 1]),
    }
    for name, array in files.items():
        np.save(shell.folder / f"{name}.npy", array)
    options = [f"--{name}={shell.folder / name}.npy" for name in files]
    options += ["--encoder=flatten", "--key", str(shell.folder / "plant-a.key"), "--json"]
    said = shell.run("client", "sign", "--client", "plant-a", *options, *words, wanted=wanted)
    return dict(json.loads(said or "{}"))


def test_federation_that_finds_its_cohorts_first_opens_no_round(shell: Shell) -> None:
    made = shell.init(*SIGNS)

    assert (made["round"], made["deadline"]) == (0, None)
    assert "python -m flows.onboard" in shell.run("doctor", wanted=1) + shell.err


def test_signature_is_looked_at_before_it_leaves(shell: Shell) -> None:
    shell.init(*SIGNS)

    looked = sign(shell, "--dry-run")
    assert (looked["classes"], looked["n_features"]) == ([0], 10)
    assert not (shell.folder / "store" / "signatures").exists()

    assert sign(shell)["encoder"] == looked["encoder"]
    assert sign(shell)["duplicate"]


def test_small_classes_stay_at_the_plant_unless_they_are_asked_for(shell: Shell) -> None:
    shell.init(*SIGNS)

    assert sign(shell, "--dry-run")["classes"] == [0]
    assert sign(shell, "--dry-run", "--min-examples", "1")["classes"] == [0, 1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no .npy file of numbers"),
        (b"\x93NUMPY\x01\x00", "no .npy file of numbers"),
        (None, "no .npy file of numbers"),
    ],
)
def test_file_that_is_no_array_of_numbers_is_one_line(
    shell: Shell, content: bytes | None, says: str
) -> None:
    shell.init(*SIGNS)
    path = shell.folder / "bad.npy"
    if content is None:
        np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    else:
        path.write_bytes(content)

    words = ["--samples", str(path), "--labels", str(path), "--encoder", "flatten"]
    shell.run("client", "sign", "--client", "plant-a", *words, wanted=1)

    assert says in shell.err
    assert len(shell.err.splitlines()) == 1


def test_encoder_that_is_none_is_refused(shell: Shell) -> None:
    shell.init(*SIGNS)

    sign(shell, "--encoder", "vit", wanted=1)

    assert "wanted flatten, sensor-stats:RANGES.toml or package.module:function" in shell.err


def test_noise_needs_a_length(shell: Shell) -> None:
    shell.init(*SIGNS)

    sign(shell, "--noise", "1", wanted=2)

    assert "--noise needs --clip-norm" in shell.err


PLANT_A = ("--client", "plant-a")


def test_a_plant_sees_where_it_stands(shell: Shell) -> None:
    shell.init()
    shell.send()

    text = shell.run("client", "status", *PLANT_A)
    facts = shell.json("client", "status", *PLANT_A)

    assert "round 1 is open, update" in text
    assert (facts["round"], facts["judged_round"]) == (1, None)
    assert facts["sent"][:12] in text


def test_a_plant_that_saw_the_newest_round_waits_in_vain(shell: Shell) -> None:
    shell.init()
    words = ("client", "watch", *PLANT_A, "--timeout", "0.2", "--pause", "0.1")

    shell.run(*words, wanted=1)

    assert shell.err == "clma: nothing new for plant-a in 0.2 s\n"


def test_a_plant_that_pulled_before_the_round_hears_of_it(shell: Shell) -> None:
    shell.init()
    out = str(shell.folder / "m.safetensors")
    shell.run("client", "pull", *PLANT_A, "--out", out)
    federation = Federation.open(shell.folder / "store")
    federation.hold_round("test")
    federation.open_round(now=dt.datetime.now(dt.UTC))

    assert shell.json("client", "watch", *PLANT_A, "--model", out)["round"] == 2
    assert shell.json("client", "watch", *PLANT_A, "--round", "1")["round"] == 2


def test_waiting_is_stopped_without_a_traceback(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.init()
    monkeypatch.setattr("clma.cli.plant_status.watch", refuse_with(KeyboardInterrupt()))

    shell.run("client", "watch", *PLANT_A, wanted=1)

    assert shell.err == "clma: stopped waiting\n"


def test_a_lost_store_leaves_the_model_and_is_said_on_stderr(shell: Shell) -> None:
    shell.init()
    words = ("client", "pull", *PLANT_A, "--out", str(shell.folder / "m.safetensors"))
    before = shell.json(*words)
    (shell.folder / "store").rename(shell.folder / "elsewhere")

    after = shell.json(*words)

    assert "the store cannot be reached" in shell.err
    assert (before["offline"], after["base_digest"]) == (None, before["base_digest"])
    assert "holds no federation" in after["offline"]
