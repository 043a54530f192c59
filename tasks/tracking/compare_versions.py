"""Compare the versions of registered models, their weights and aliases with a ledger."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator

from mlflow.entities.model_registry import ModelVersion

from clma.errors import DamagedStoreError
from clma.records import model_ref
from clma.rows import Gate
from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.findings import Finding, Look, Trouble
from tasks.tracking.models import weights_file
from tasks.tracking.names import CHAMPION, TAG_DIGEST, TAG_KEY, registered_model_name

__all__ = ["unknown_versions", "version_findings"]


def version_findings(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with versions, their weights and the alias of each cohort."""
    found = _by_model(look)
    for key, row in look.promised_rows().items():
        if row.gate is not Gate.PROMOTED:
            continue
        about = key.removeprefix(f"{look.federation.name}/")
        look.on_progress(f"MLflow: comparing the version of round {about}")
        versions = found.get((key, row.model_digest))
        if versions is None:
            yield Finding(Trouble.VERSION_MISSING, about)
            continue
        yield from _of_version(look, versions[0], row.model_digest)
        for version in versions[1:]:
            yield Finding(Trouble.VERSION_TWICE, _named(version), versions=(version,))
    for version in unknown_versions(look):
        yield Finding(Trouble.VERSION_UNKNOWN, _named(version), versions=(version,))
    yield from _of_aliases(look)


def unknown_versions(look: Look) -> Iterator[ModelVersion]:
    """Yield the versions of models that the ledger does not have for their round and cohort."""
    promised = {
        (key, row.model_digest)
        for key, row in look.promised_rows().items()
        if row.gate is Gate.PROMOTED
    }
    for model, versions in _by_model(look).items():
        if model not in promised:
            yield from versions


def _by_model(look: Look) -> dict[tuple[str, str], list[ModelVersion]]:
    """Return versions by key and digest, of each the oldest first."""
    found: dict[tuple[str, str], list[ModelVersion]] = defaultdict(list)
    for version in sorted(look.inventory.versions, key=lambda v: int(v.version)):
        found[version.tags.get(TAG_KEY, ""), version.tags.get(TAG_DIGEST, "")].append(version)
    return dict(found)


def _of_version(look: Look, version: ModelVersion, digest: str) -> Iterator[Finding]:
    champion = look.inventory.aliases.get(version.name, {}).get(CHAMPION)
    is_served = str(version.version) == champion
    folder = ArtifactFolder(str(version.source), look.tracking)
    if (folder.is_local or look.thorough or is_served) and not _has_weights(
        look, folder, digest, by_digest=look.thorough or is_served
    ):
        yield Finding(Trouble.WEIGHTS_CHANGED, _named(version), versions=(version,))
    elif str(version.source) not in look.inventory.logged_models:
        yield Finding(Trouble.MODEL_DELETED, _named(version), versions=(version,))


def _has_weights(look: Look, folder: ArtifactFolder, digest: str, *, by_digest: bool) -> bool:
    path = weights_file(digest)
    if by_digest:
        return folder.digest(path) == digest and folder.size("MLmodel") is not None
    wanted = None
    # A model that the ledger itself lost is told as that.
    with contextlib.suppress(DamagedStoreError):
        wanted = look.federation.store.info(model_ref(digest).path).size_bytes
    size = folder.size(path)
    return size is not None and wanted in {None, size} and folder.size("MLmodel") is not None


def _of_aliases(look: Look) -> Iterator[Finding]:
    for cohort in look.federation.state().cohorts.values():
        name = registered_model_name(look.federation.name, cohort.cohort_id)
        served = {
            str(version.version)
            for version in look.inventory.versions
            if version.name == name and version.tags.get(TAG_DIGEST) == cohort.model_digest
        }
        if served and look.inventory.aliases.get(name, {}).get(CHAMPION) not in served:
            yield Finding(Trouble.ALIAS_WRONG, name)


def _named(version: ModelVersion) -> str:
    return f"{version.name} version {version.version}"
