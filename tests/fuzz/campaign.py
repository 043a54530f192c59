"""Drop spoiled updates into the inbox of a real federation, seal the round, and judge the product.

A fault is: the seal raises; what was changed is accepted; a submission is without a verdict, or has
one that is not of the closed list; a text that is not plain ASCII; an honest update is not taken;
something outside the federation's folder is made, changed or deleted; something is executed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.ledger.keys import inbox_prefix, printable
from clma.rows import SealedRound, UpdateRow, Verdict
from clma.updates.reasons import Reason
from tests.fuzz.folder_mutations import FOLDER_MUTATIONS
from tests.fuzz.foreign_files import FOREIGN_FILES
from tests.fuzz.memory import peak_growth_mb, reset_peak
from tests.fuzz.message_mutations import MESSAGE_MUTATIONS
from tests.fuzz.submission import FEDERATION, Submission, honest, tensors_of
from tests.fuzz.tensor_mutations import TENSOR_MUTATIONS

MUTATIONS = {**TENSOR_MUTATIONS, **FOREIGN_FILES, **MESSAGE_MUTATIONS, **FOLDER_MUTATIONS}
HONEST = ("honest-0", "honest-1")
BATCH = 50

_NOW = dt.datetime(2026, 1, 5, 20, tzinfo=dt.UTC)


@dataclass(slots=True)
class Tally:
    """What a campaign found.

    Parameters
    ----------
    n_files, n_refused, n_equivalent, n_identical : int
        All; changed and refused; the same said otherwise and accepted; not changed at all.
    n_crashes : int
        Rounds whose seal raised.
    reasons, kinds : Counter
        Of what was refused; of what was tried.
    faults : list of str
    max_seconds, max_rss_mb : float
        Of the seal of any round, and so an upper bound for any of its files.
    """

    n_files: int = 0
    n_refused: int = 0
    n_equivalent: int = 0
    n_identical: int = 0
    n_crashes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    max_seconds: float = 0.0
    max_rss_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One spoiled submission, with the number that makes it again."""

    number: int
    kind: str
    sent: Submission
    identical: bool


def run_campaign(n_files: int, seed: int, *, first: int = 0, batch: int = BATCH) -> Tally:
    """Send files number `first` to `first + n_files` of a seed, and judge what becomes of them."""
    tally = Tally()
    for start in range(first, first + n_files, batch):
        numbers = range(start, min(start + batch, first + n_files))
        with tempfile.TemporaryDirectory(prefix="clma-fuzz-") as sandbox:
            _run_round(Path(sandbox), numbers, seed, tally)
    return tally


def make_federation(folder: Path, client_ids: Sequence[str]) -> Federation:
    """Create a federation below a folder, with its first round open."""
    base = folder / "base.safetensors"
    base.write_bytes(tensors_of(np.random.default_rng(0)))
    # Unsigned, so that what is spoiled meets every check behind the signature.
    # The note of a clock that is off says by how much: every six minutes equal nights would differ.
    identity = {"updates": "unsigned", "max_clock_skew_hours": 1e9}
    config = preset_config(FEDERATION, identity=identity)
    federation = Federation.create(folder / "store", config, base, client_ids, now=_NOW)
    federation.open_round(now=_NOW)
    return federation


def attempt_of(number: int, seed: int, base_digest: str) -> Attempt:
    """Make the spoiled submission of a number; kinds take turns."""
    rng = np.random.default_rng([seed, number])
    kind = list(MUTATIONS)[number % len(MUTATIONS)]
    good = honest(f"plant-{number}", base_digest, rng)
    sent = MUTATIONS[kind](good, rng)
    untouched = sent.place is None and sent.folder is None
    identical = untouched and (sent.tensors, sent.message()) == (good.tensors, good.message())
    return Attempt(number, kind, sent, identical)


def _run_round(sandbox: Path, numbers: range, seed: int, tally: Tally) -> None:
    federation = make_federation(sandbox, [*HONEST, *(f"plant-{n}" for n in numbers)])
    inbox = Path(federation.store.url) / inbox_prefix(1)
    base_digest = federation.state().cohorts["c0"].model_digest
    for i, client_id in enumerate(HONEST):
        honest(client_id, base_digest, np.random.default_rng([seed, i])).write(inbox)
    attempts = [attempt_of(number, seed, base_digest) for number in numbers]
    for attempt in attempts:
        attempt.sent.write(inbox)
    (sandbox / "desk").mkdir()

    before = _files_outside(sandbox)
    reset_peak()
    started = time.perf_counter()
    with contextlib.chdir(sandbox / "desk"):
        try:
            sealed = federation.seal_round(now=_NOW, force=True)
        except Exception:  # noqa: BLE001 - any exception at all is the finding
            tally.n_crashes += 1
            tally.faults.append(f"files {numbers}: the seal raised\n{traceback.format_exc()}")
            return
    tally.max_seconds = max(tally.max_seconds, time.perf_counter() - started)
    tally.max_rss_mb = max(tally.max_rss_mb, peak_growth_mb())
    if _files_outside(sandbox) != before:
        tally.faults.append(f"files {numbers}: something outside the federation has changed")
    _judge(sealed, attempts, tally)


def _files_outside(sandbox: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sandbox.rglob("*")
        if sandbox / "store" not in (path, *path.parents)
    }


def _judge(sealed: SealedRound, attempts: Sequence[Attempt], tally: Tally) -> None:
    used = {update.client_id for update in sealed.updates}
    wanted = {a.sent.client_id for a in attempts if a.sent.accepted or a.identical} | set(HONEST)
    by_client: dict[str, list[UpdateRow]] = {}
    for row in sealed.rows:
        by_client.setdefault(row.client_id, []).append(row)
        tally.faults += [f"{row.client_id}: {fault}" for fault in _faults_of(row)]
    tally.faults += [f"{client_id}: an honest update is not used" for client_id in wanted - used]
    for attempt in attempts:
        tally.n_files += 1
        tally.kinds[attempt.kind] += 1
        tally.n_identical += attempt.identical
        tally.n_equivalent += attempt.sent.accepted
        if attempt.identical or attempt.sent.accepted:
            continue
        shown = printable(attempt.sent.folder or attempt.sent.client_id)
        rows = by_client.get(attempt.sent.client_id, []) + by_client.get(shown, [])
        refused = [r for r in rows if r.verdict is not Verdict.ACCEPTED and r.reason]
        if attempt.sent.client_id in used or not refused:
            tally.faults.append(f"file {attempt.number} ({attempt.kind}): not refused")
            continue
        tally.n_refused += 1
        tally.reasons[refused[-1].reason or ""] += 1


def _faults_of(row: UpdateRow) -> list[str]:
    faults = []
    if row.reason is not None and row.reason not in set(Reason):
        faults.append(f"reason {row.reason!r} is not of the closed list")
    if row.verdict is not Verdict.ACCEPTED and row.reason is None:
        faults.append("refused without a reason")
    texts = (row.client_id, row.detail or "", row.digest or "", row.base_digest or "")
    odd = [text for text in texts if not (text.isascii() and text.isprintable())]
    return faults + [f"text {text!r} is not plain ASCII" for text in odd]
