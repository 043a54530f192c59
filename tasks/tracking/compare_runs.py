"""Compare the runs of an experiment, and their files, with the rounds of a ledger."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping

from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE

from clma.config import render_config
from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.artifacts import table_texts
from tasks.tracking.findings import Finding, Look, Trouble
from tasks.tracking.names import TAG_DIGEST, TAG_KEY, TAG_PREFECT_URL, TAG_PUBLISHED, round_key
from tasks.tracking.runs import by_age
from tasks.tracking.summary import round_note

__all__ = ["run_findings"]

_NEWEST = 7
"""Rounds whose files are looked at where every look is a call over the network."""


def run_findings(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with the runs of rounds and cohorts."""
    name, rows = look.federation.name, look.promised_rows()
    rounds = {round_key(name, r): r for r in look.history.rounds}
    runs = _by_key(look.inventory.runs)
    deleted = _by_key(look.inventory.deleted_runs)
    for key in (*rounds, *rows):
        about = key.removeprefix(f"{name}/")
        look.on_progress(f"MLflow: comparing round {about}")
        found = runs.get(key)
        if found is None:
            gone = Trouble.RUN_DELETED if key in deleted else Trouble.RUN_MISSING
            yield Finding(gone, about)
            continue
        if len(found) > 1:
            yield Finding(Trouble.RUN_TWICE, about, runs=tuple(found[1:]))
        if TAG_PUBLISHED not in found[0].data.tags:
            yield Finding(Trouble.RUN_MISSING, about)
        elif key in rounds:
            yield from _of_round(look, rounds[key], found[0])
        else:
            parents = runs.get(key.rpartition("/")[0])
            yield from _of_cohort(about, found[0], rows[key].model_digest, parents)
    for key, found in runs.items():
        if key not in rounds and key not in rows:
            about = key.removeprefix(f"{name}/")
            yield Finding(Trouble.RUN_UNKNOWN, about, runs=tuple(found))


def _by_key(runs: tuple[Run, ...]) -> Mapping[str, list[Run]]:
    """Return runs by key, of each the one that a publisher goes on with first."""
    found: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=by_age):
        found[run.data.tags[TAG_KEY]].append(run)
    return dict(found)


def _of_cohort(about: str, run: Run, digest: str, parents: list[Run] | None) -> Iterator[Finding]:
    if run.data.tags.get(TAG_DIGEST) != digest:
        yield Finding(Trouble.RUN_CHANGED, about, "the model", runs=(run,))
    elif parents and run.data.tags.get(MLFLOW_PARENT_RUN_ID) != parents[0].info.run_id:
        yield Finding(Trouble.RUN_CHANGED, about, "the run it is shown below", runs=(run,))


def _of_round(look: Look, round_num: int, run: Run) -> Iterator[Finding]:
    # What forgetting a client rewrote names nobody any more; otherwise digests are proof enough.
    with_texts = look.thorough or any(round_num in f.rounds for f in look.history.forgettings)
    if with_texts:
        url = run.data.tags.get(TAG_PREFECT_URL)
        note = round_note(look.federation.name, look.history.decision(round_num), url)
        if run.data.tags.get(MLFLOW_RUN_NOTE) != note:
            yield Finding(Trouble.RUN_CHANGED, str(round_num), "the account", runs=(run,))
    folder = ArtifactFolder(str(run.info.artifact_uri), look.tracking)
    if folder.is_local or look.thorough or round_num in look.history.rounds[-_NEWEST:]:
        changed = ", ".join(_changed_files(look, round_num, folder, with_texts))
        if changed:
            yield Finding(Trouble.FILES_CHANGED, str(round_num), changed, runs=(run,))


def _changed_files(
    look: Look, round_num: int, folder: ArtifactFolder, with_texts: bool
) -> Iterator[str]:
    digests = look.history.table_digests(round_num)
    texts = table_texts(look.history.decision(round_num)) if with_texts else {}
    for name, digest in digests.items():
        if folder.digest(f"tables/{name}.parquet") != digest:
            yield f"tables/{name}.parquet"
        path = f"tables/{name}.csv"
        wanted = hashlib.sha256(texts[name]).hexdigest() if with_texts else None
        if folder.size(path) is None or wanted not in {None, folder.digest(path)}:
            yield path
    wanted = None
    if look.thorough:
        settings = render_config(look.federation.config_at_seal(round_num))
        wanted = hashlib.sha256(settings.encode()).hexdigest()
    path = "federation.toml"
    if folder.size(path) is None or wanted not in {None, folder.digest(path)}:
        yield path
