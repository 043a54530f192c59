"""Versions of a cohort's registered model, logged as code and safetensors: nothing is unpickled."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import mlflow.pyfunc
import numpy as np
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Schema, TensorSpec

import clma
from clma.config import FederationConfig, ModelAdapter
from clma.errors import InvalidConfigError
from clma.records import model_ref
from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.names import (
    CHAMPION,
    TAG_COHORT,
    TAG_DIGEST,
    TAG_FEDERATION,
    TAG_KEY,
    TAG_ROUND,
    registered_model_name,
    round_key,
)
from tasks.tracking.runs import Experiment

__all__ = [
    "CohortModelFiles",
    "disown_version",
    "link_model",
    "move_champion",
    "register_version",
    "remove_version",
    "weights_file",
]

# An example would be predicted on, and what an input looks like is the factory's affair.
warnings.filterwarnings("ignore", message=".*An input example was not provided")

SERVING_SCRIPT = Path(__file__).parents[1] / "serving_model.py"

_PACKAGES = {"torch": "torch", "keras": "keras", "sklearn": "scikit-learn"}

# What goes in depends on the factory's network, what comes out does not.
_SIGNATURE = ModelSignature(outputs=Schema([TensorSpec(np.dtype(np.float32), (-1, -1))]))


@dataclass(frozen=True, slots=True)
class CohortModelFiles:
    """What one version is made from.

    Parameters
    ----------
    config : FederationConfig
        Names the factory.
    cohort_id : str
    round_num : int
        Round that promoted the model.
    digest : str
        SHA-256 of `weights`.
    weights : Path
        Safetensors file.
    """

    config: FederationConfig
    cohort_id: str
    round_num: int
    digest: str
    weights: Path

    @property
    def tags(self) -> dict[str, str]:
        """Tags that a version is found by."""
        federation = self.config.federation
        return {
            TAG_KEY: round_key(federation, self.round_num, self.cohort_id),
            TAG_FEDERATION: federation,
            TAG_ROUND: str(self.round_num),
            TAG_COHORT: self.cohort_id,
            TAG_DIGEST: self.digest,
        }


def register_version(
    experiment: Experiment, run_id: str, files: CohortModelFiles
) -> tuple[int, bool]:
    """Register a cohort's model of a round, once.

    Parameters
    ----------
    experiment : Experiment
    run_id : str
        The cohort's run of that round.
    files : CohortModelFiles

    Returns
    -------
    int, bool
        The version's number, and whether it is new.
    """
    client = experiment.client
    name = registered_model_name(experiment.federation, files.cohort_id)
    known = _versions(experiment, name, {TAG_KEY: files.tags[TAG_KEY], TAG_DIGEST: files.digest})
    if known:
        return min(int(version.version) for version in known), False
    _ensure_registered(experiment, name, files.cohort_id)
    model = _logged_model(experiment, run_id, files)
    # Tags come with the creation, so there is never a version that a retry would not find.
    version = client.create_model_version(
        name,
        source=model.artifact_location,
        run_id=run_id,
        tags=files.tags,
        description=f"Round {files.round_num}, model {files.digest[:12]}",
        model_id=model.model_id,
    )
    return int(version.version), True


def move_champion(experiment: Experiment, cohort_id: str, digest: str) -> int | None:
    """Point a cohort's alias to the version of the model that its members are served.

    Parameters
    ----------
    experiment : Experiment
    cohort_id : str
    digest : str
        The model's, as the ledger's newest state has it.

    Returns
    -------
    int or None
        That version; None, and the alias stays, where no version holds this model.
    """
    client = experiment.client
    name = registered_model_name(experiment.federation, cohort_id)
    versions = _versions(experiment, name, {TAG_DIGEST: digest})
    if not versions:
        return None
    newest = max(versions, key=lambda v: (int(v.tags.get(TAG_ROUND, 0)), -int(v.version)))
    aliases = client.get_registered_model(name).aliases
    if aliases.get(CHAMPION) != str(newest.version):
        client.set_registered_model_alias(name, CHAMPION, str(newest.version))
    return int(newest.version)


def link_model(experiment: Experiment, run_id: str, files: CohortModelFiles) -> None:
    """Show on a run that was made anew the model that an earlier one logged."""
    found = experiment.client.search_logged_models(
        [experiment.experiment_id],
        f"tags.`{TAG_KEY}` = '{files.tags[TAG_KEY]}' and tags.`{TAG_DIGEST}` = '{files.digest}'",
    )
    outputs = [LoggedModelOutput(model.model_id, files.round_num) for model in found[:1]]
    experiment.client.log_outputs(run_id, outputs)


def disown_version(experiment: Experiment, version: ModelVersion) -> None:
    """Make a version one that no publisher finds, so that the next one makes another."""
    for tag in (TAG_KEY, TAG_DIGEST):
        if tag in version.tags:
            experiment.client.delete_model_version_tag(version.name, version.version, tag)
    _delete_logged_model(experiment, str(version.source))


def remove_version(
    experiment: Experiment, version: ModelVersion, folder: ArtifactFolder, *, with_files: bool
) -> None:
    """Delete a version for good; repeating it after a kill finishes it.

    Parameters
    ----------
    experiment : Experiment
    version : ModelVersion
    folder : ArtifactFolder
        Of its weights and code.
    with_files : bool
        No other version is made of these files.
    """
    if with_files:
        folder.delete()
        _delete_logged_model(experiment, folder.uri)
    # Last: what is still listed is looked at again.
    experiment.client.delete_model_version(version.name, version.version)


def _delete_logged_model(experiment: Experiment, location: str) -> None:
    client, ids = experiment.client, [experiment.experiment_id]
    model_id = location.removesuffix("/artifacts").rpartition("/")[2]
    if client.search_logged_models(ids, f"model_id = '{model_id}'"):
        client.delete_logged_model(model_id)


def weights_file(digest: str) -> str:
    """Return where the weights of a version lie in its folder."""
    return f"artifacts/{Path(model_ref(digest).path).name}"


def _versions(experiment: Experiment, name: str, tags: Mapping[str, str]) -> list[ModelVersion]:
    conditions = [f"name = '{name}'", *(f"tags.`{key}` = '{value}'" for key, value in tags.items())]
    return list(experiment.client.search_model_versions(" and ".join(conditions)))


def _ensure_registered(experiment: Experiment, name: str, cohort_id: str) -> None:
    tags = {TAG_FEDERATION: experiment.federation, TAG_COHORT: cohort_id}
    text = f"Cohort {cohort_id} of {experiment.federation}"
    try:
        experiment.client.create_registered_model(name, tags, text)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _logged_model(experiment: Experiment, run_id: str, files: CohortModelFiles) -> LoggedModel:
    """Return the run's logged model, from an earlier attempt if that one finished it.

    What other attempts left half made is deleted: one federation has one publisher at a time, and
    nothing refers to a model before it is finished.
    """
    client = experiment.client
    found = client.search_logged_models(
        [experiment.experiment_id],
        f"source_run_id = '{run_id}' and tags.`{TAG_DIGEST}` = '{files.digest}'",
    )
    finished = [model for model in found if model.status == LoggedModelStatus.READY]
    oldest = min(finished, key=lambda m: (m.creation_timestamp, m.model_id), default=None)
    model = oldest or _make_logged_model(experiment, run_id, files)
    for other in found:
        if other.model_id != model.model_id:
            client.delete_logged_model(other.model_id)
    outputs = client.get_run(run_id).outputs
    known = {output.model_id for output in outputs.model_outputs} if outputs else set()
    if model.model_id not in known:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, files.round_num)])
    return model


def _make_logged_model(experiment: Experiment, run_id: str, files: CohortModelFiles) -> LoggedModel:
    client = experiment.client
    model = client.create_logged_model(
        experiment.experiment_id,
        name=files.cohort_id,
        source_run_id=run_id,
        tags=files.tags,
        model_type="cohort model",
    )
    with tempfile.TemporaryDirectory() as folder:
        _save_model(Path(folder), files, Model(run_id=run_id, model_id=model.model_id))
        client.log_model_artifacts(model.model_id, str(Path(folder) / "model"))
    return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def _save_model(folder: Path, files: CohortModelFiles, description: Model) -> None:
    """Write the files of a version into ``folder/model``."""
    facts = {
        "federation": files.config.federation,
        "cohort_id": files.cohort_id,
        "round": files.round_num,
        "model_digest": files.digest,
        "model_factory": files.config.model_factory,
        "model_arguments": files.config.model_arguments,
        "model_adapter": files.config.model_adapter,
    }
    serving = folder / "serving.json"
    serving.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    mlflow.pyfunc.save_model(
        folder / "model",
        python_model=str(SERVING_SCRIPT),
        artifacts={"weights": str(files.weights), "serving": str(serving)},
        code_paths=_code(files.config.model_factory),
        pip_requirements=_requirements(files.config.model_factory, files.config.model_adapter),
        signature=_SIGNATURE,
        mlflow_model=description,
    )


@cache
def _code(factory: str) -> list[str]:
    """Return the source that a version brings along: clma, and the factory's if nobody installs it.

    A version is served by the code that it was published with, wherever it is loaded.
    """
    folders = [Path(clma.__file__).parent]
    package = factory.partition(":")[0].partition(".")[0]
    known = {"", "clma", *sys.stdlib_module_names, *metadata.packages_distributions()}
    if package not in known:
        spec = find_spec(package)
        if spec is None or (spec.origin is None and not spec.submodule_search_locations):
            raise InvalidConfigError(f"model factory {factory!r}: there is no module {package!r}")
        place = spec.submodule_search_locations
        folders.append(Path(next(iter(place)) if place else str(spec.origin)))
    return [str(folder) for folder in folders]


@cache
def _requirements(factory: str, adapter: ModelAdapter = "torch") -> list[str]:
    """Return what a version needs, pinned; given, because MLflow would infer it in a subprocess."""
    names = ["mlflow", "numpy"]
    package = factory.partition(":")[0].partition(".")[0]
    if package:
        names.append(_PACKAGES[adapter])
    if package not in {"", "clma"}:
        names += metadata.packages_distributions().get(package, [])
    return [_pinned(name) for name in dict.fromkeys(names)]


def _pinned(name: str) -> str:
    try:
        # A local build ("2.13.0+cpu") is not on any index.
        return f"{name}=={metadata.version(name).partition('+')[0]}"
    except metadata.PackageNotFoundError:
        # What a model is computed with need not be where it is published.
        return name
