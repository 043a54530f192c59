"""What a night came to, in JSON values that are equal exactly if the nights are."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from pydantic import TypeAdapter

from clma.ledger.audit import audit
from clma.ledger.federation import Federation
from clma.records import FederationState
from tasks.tracking import CHAMPION
from tasks.tracking.names import TAG_COHORT, TAG_DIGEST, TAG_KEY, TAG_PUBLISHED, TAG_ROUND
from tests.reliability.site import NAME, Site

__all__ = ["Facts", "facts_of", "weights_digest"]

Facts = dict[str, Any]

_OWN_DRAFTS = (".*.tmp", ".artifact.uploading.*")


def facts_of(site: Site) -> Facts:
    """Return everything that a night decides or shows, without times and random names."""
    federation = site.federation()
    return {
        "files": dict(_decided_files(site.store)),
        "accepted": _accepted(federation),
        "state": _state(federation),
        "ledger": [[e.kind.value, e.payload.get("round")] for e in federation.entries()],
        "problems": list(audit(federation).problems),
        "leftovers": sorted(
            str(path.relative_to(site.folder))
            for pattern in _OWN_DRAFTS
            for part in (site.store, site.database.parent)
            for path in part.rglob(pattern)
        ),
        **_tracked(site, federation.state()),
    }


def weights_digest(source: str) -> str:
    """Return the SHA-256 of the weights of a published version."""
    (weights,) = (_folder(source) / "artifacts").glob("*.safetensors")
    return _sha256(weights)


def _decided_files(store: Path) -> Iterator[tuple[str, str]]:
    for pattern in ("models/*.safetensors", "rounds/*/*.parquet", "rounds/*/sealed-*.json"):
        for path in sorted(store.glob(pattern)):
            yield str(path.relative_to(store)), _sha256(path)


def _accepted(federation: Federation) -> list[list[Any]]:
    return [
        [round_num, update.client_id, update.tensors.sha256]
        for round_num in (1, 2)
        for update in federation.sealed_round(round_num).updates
    ]


def _state(federation: Federation) -> Any:
    values = TypeAdapter(FederationState).dump_python(federation.state(), mode="json")
    del values["deadline"]  # when the next round opened decides it
    return values


def _tracked(site: Site, state: FederationState) -> Facts:
    client = MlflowClient(site.tracking.uri, site.tracking.uri)
    experiment = client.get_experiment_by_name(NAME)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    key_of = {run.info.run_id: run.data.tags[TAG_KEY] for run in runs}
    logged = client.search_logged_models([experiment.experiment_id])
    return {
        "runs": sorted((_run(run, key_of) for run in runs), key=lambda r: str(r["key"])),
        "logged_models": sorted([key_of[m.source_run_id], m.status.value] for m in logged),
        **_registry(client, state),
    }


def _run(run: Run, key_of: dict[str, str]) -> Facts:
    folder = _folder(run.info.artifact_uri)
    return {
        "key": run.data.tags[TAG_KEY],
        "parent": key_of.get(run.data.tags.get(MLFLOW_PARENT_RUN_ID, "")),
        "status": run.info.status,
        "published": run.data.tags.get(TAG_PUBLISHED),
        "metrics": run.data.metrics,
        "params": run.data.params,
        "n_models": len(run.outputs.model_outputs) if run.outputs else 0,
        "artifacts": {
            str(path.relative_to(folder)): _sha256(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }


def _registry(client: MlflowClient, state: FederationState) -> Facts:
    versions: Counter[str] = Counter()
    champions = {}
    for model in client.search_registered_models():
        for version in client.search_model_versions(f"name = '{model.name}'"):
            versions[f"{model.name} of round {version.tags[TAG_ROUND]}"] += 1
        champion = client.get_model_version_by_alias(model.name, CHAMPION)
        served = state.cohorts[champion.tags[TAG_COHORT]].model_digest
        found = {champion.tags[TAG_DIGEST], weights_digest(str(champion.source))}
        champions[model.name] = "served" if found == {served} else f"{found}, served is {served}"
    return {"versions": dict(sorted(versions.items())), "champions": champions}


def _folder(uri: str) -> Path:
    return Path(url2pathname(urlsplit(uri).path))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
