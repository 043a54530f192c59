"""Ways to lay a good update down so that it must not be taken, or where it harms."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.fuzz.submission import Submission, write_files
from tests.fuzz.tensor_mutations import Rng, one_of

NAMES = (
    "...", ". .", "..%2f..", "%2e%2e", "\\..\\..", "C:", "a\nb", "a\rb", "a\tb", "\x1b[31mred",
    "\x7f", "x" * 255, "x" * 65, "=cmd()", "@SUM(1)", "-rf", "--help", "*", "?", "~", "$HOME",
    "`id`", "$(id)", "; rm", "|", "&", "con", "NUL", "com1.txt", "caf\u00e9",
    unicodedata.normalize("NFD", "caf\u00e9"), "\u202egnp", "\U0001f600", "<script>", "' OR 1=1",
    '"', "a b", " a", "a ", "a.", "stranger", "honest-0 ", "HONEST-0", "h\u043enest-0", "honest-0.",
    "{0}", "%s", "round=000001", "update.json", "__pycache__", "\u2028", "\udcff\udcfe",
)  # fmt: skip
"""As far as the file system allows; the last one is no UTF-8."""

FILES = ("update.safetensors", "update.json")


def strange_folder(sent: Submission, rng: Rng) -> Submission:
    return replace(sent, folder=one_of(rng, *NAMES))


def hidden_folder(sent: Submission, rng: Rng) -> Submission:
    return replace(sent, folder=one_of(rng, ".hidden", "..x", ".git", f".{sent.client_id}"))


def deep_folder(sent: Submission, rng: Rng) -> Submission:
    return replace(sent, folder="/".join([sent.client_id, *["d"] * int(rng.integers(1, 30))]))


def misnamed(sent: Submission, rng: Rng) -> Submission:
    """One of the two files has another name, or is missing."""
    wrong = one_of(
        rng, "", "UPDATE.JSON", "update.json ", "update.json.", "update.jsonl", "update", "a\nb",
        "\x1b[31m", "update.\n" + "a" * 63 + ".json", "update." + "0" * 64 + ".json",
        ".update.json.0.tmp", "..", "x" * 255,
    )  # fmt: skip

    def place(sent: Submission, inbox: Path) -> None:
        write_files(inbox / sent.client_id, sent)
        file = inbox / sent.client_id / one_of(rng, *FILES)
        if wrong in {"", ".."}:
            file.unlink()
        else:
            file.rename(file.with_name(wrong))

    return replace(sent, place=place)


def instead(sent: Submission, rng: Rng) -> Submission:
    """One of the two files is something else: a link, a pipe, a folder, nothing."""
    name = one_of(rng, *FILES)
    kind = one_of(rng, "link", "loop", "dangling", "device", "outside", "pipe", "folder", "nothing")

    def place(sent: Submission, inbox: Path) -> None:
        folder = inbox / sent.client_id
        write_files(folder, sent)
        file = folder / name
        kept = file.read_bytes()
        file.unlink()
        if kind == "link":
            (folder / "kept").write_bytes(kept)
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            (file / "x").mkdir(parents=True)
        elif kind == "nothing":
            file.write_bytes(b"")
        targets = {"link": "kept", "loop": name, "dangling": "gone", "device": "/dev/zero"}
        targets["outside"] = "/etc/hostname"
        if kind in targets:
            file.symlink_to(targets[kind])

    return replace(sent, place=place)


def folder_instead(sent: Submission, rng: Rng) -> Submission:
    """The client's folder is a link to a good one, a file or a pipe."""
    kind = one_of(rng, "link", "loop", "file", "pipe", "up")

    def place(sent: Submission, inbox: Path) -> None:
        folder = inbox / sent.client_id
        if kind == "link":
            write_files(inbox / ".elsewhere" / sent.client_id, sent)
            folder.symlink_to(inbox / ".elsewhere" / sent.client_id)
        elif kind == "file":
            folder.write_bytes(sent.tensors)
        elif kind == "pipe":
            os.mkfifo(folder)
        else:
            folder.symlink_to(".." if kind == "up" else sent.client_id)

    return replace(sent, place=place)


def of_another(sent: Submission, rng: Rng) -> Submission:
    """The folder holds hard links to what an honest client sent."""

    def place(sent: Submission, inbox: Path) -> None:
        (inbox / sent.client_id).mkdir()
        for name in FILES:
            os.link(inbox / "honest-0" / name, inbox / sent.client_id / name)

    return replace(sent, place=place)


def crowd(sent: Submission, rng: Rng) -> Submission:
    """A good update among files that nobody asked for; it is taken, they are not."""
    n_files = int(rng.integers(1, 60))

    def place(sent: Submission, inbox: Path) -> None:
        folder = inbox / sent.client_id
        write_files(folder, sent)
        for i in range(n_files):
            (
                folder / one_of(rng, f"f{i}", f"\n{i}", f".{i}.tmp", f"-{i}", f"update.{i}.json")
            ).touch()
        for depth in range(1, 12):
            draft = folder.joinpath(*["d"] * depth, ".d.tmp")
            draft.mkdir(parents=True)
            os.utime(draft, (0, 0))
        # As far as the file system keeps it.
        time = one_of(rng, 0, 2**31, 10**12, -(10**11))
        os.utime(folder / "update.json", (time, time))

    return replace(sent, place=place, accepted=True)


FOLDER_MUTATIONS: dict[str, Callable[[Submission, Rng], Submission]] = {
    "folder/strange": strange_folder,
    "folder/hidden": hidden_folder,
    "folder/deep": deep_folder,
    "folder/misnamed": misnamed,
    "folder/instead": instead,
    "folder/folder-instead": folder_instead,
    "folder/of-another": of_another,
    "folder/crowd": crowd,
}
