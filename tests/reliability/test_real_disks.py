"""No stand-ins: the system itself refuses, by a file size limit and by a disk that is full."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.parameters.tensor_file import serialize_tensors
from tests.clma.ledger.fleet import NOW
from tests.reliability.small_night import drafts, visible

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and mounts are Linux's")

LIMITED = """
import resource, sys
from clma.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
main(sys.argv[2:])
"""

SMALL_DISK = 'mount -t tmpfs -o size=256k,mode=777 none "$0" && cp -r "$1"/. "$0" && shift && "$@"'
"""Makes a disk of 256 kB that only this command sees, and ends with it."""

N_WEIGHTS = 25_000
"""100 kB a model: the base and one update fit on the small disk, a second update does not."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation of two plants with its first round open, and what a plant trained."""
    model = {"w": np.zeros(N_WEIGHTS, np.float32)}
    for name in ("base.safetensors", "trained.safetensors"):
        (tmp_path / name).write_bytes(serialize_tensors(model))
    base = tmp_path / "base.safetensors"
    config = preset_config("f", identity={"updates": "unsigned"})
    made = Federation.create(tmp_path / "store", config, base, ["p1", "p2"], now=NOW)
    made.open_round(now=NOW)
    return tmp_path


def submit_words(folder: Path, client_id: str, store: Path | None = None) -> list[str]:
    where = ["--store", str(store or folder / "store"), "--federation", "f"]
    update = ["--update", str(folder / "trained.safetensors"), "--examples", "10"]
    return ["client", "submit", "--client", client_id, *where, *update]


def submit_limited(folder: Path, limit: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", LIMITED, str(limit), *submit_words(folder, "p1")]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_a_file_size_limit_is_one_line_and_leaves_nothing(folder: Path) -> None:
    """The system takes the first half of the file and refuses the second."""
    before = visible(folder / "store")

    run = submit_limited(folder, limit=50_000)

    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "update.safetensors cannot be written" in run.stderr
    assert "(EFBIG); raise the file size limit" in run.stderr
    assert (visible(folder / "store"), drafts(folder)) == (before, [])


def test_once_the_limit_is_raised_the_update_counts_once(folder: Path) -> None:
    submit_limited(folder, limit=50_000)

    assert submit_limited(folder, limit=10**9).returncode == 0
    sealed = Federation.open(folder / "store").seal_round(now=NOW, force=True)
    assert [update.client_id for update in sealed.updates] == ["p1"]


def test_a_full_disk_is_one_line_and_the_store_stays_whole(folder: Path, tmp_path: Path) -> None:
    """A disk of 256 kB, mounted for this test alone; the second update does not fit on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("unshare") is None or _on_small_disk(disk, folder / "store", "true").returncode:
        pytest.skip("this user may not mount a file system of its own")
    script = folder / "fill.py"
    script.write_text(FILL)
    words = [arguments for c in ("p1", "p2") for arguments in (*submit_words(folder, c, disk), "/")]

    run = _on_small_disk(disk, folder / "store", sys.executable, str(script), str(disk), *words)

    assert run.stdout.splitlines()[-1] == "codes [None, 1], drafts 0, problems 0", run.stderr
    assert run.stderr.count("\n") == 1
    assert "(ENOSPC); free at least 11" in run.stderr


FILL = """
import itertools, sys
from pathlib import Path
from clma.cli import main
from clma.ledger.audit import audit
from clma.ledger.federation import Federation

codes = []
for is_end, words in itertools.groupby(sys.argv[2:], lambda word: word == "/"):
    if not is_end:
        try:
            main(list(words))
        except SystemExit as end:
            codes.append(end.code or None)
disk = Path(sys.argv[1])
n_drafts = len(list(disk.rglob(".*.tmp")))
n_problems = len(audit(Federation.open(disk)).problems)
print(f"codes {codes}, drafts {n_drafts}, problems {n_problems}")
"""


def _on_small_disk(disk: Path, content: Path, *words: str) -> subprocess.CompletedProcess[str]:
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK]
    return subprocess.run(
        [*mount, str(disk), str(content), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
