"""A plant that asks for its model again and again, whatever happens to the night."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tasks.tracking import CHAMPION, registered_model_name
from tasks.tracking.names import TAG_DIGEST
from tests.reliability.judge import weights_digest
from tests.reliability.site import COHORTS, NAME, Site

__all__ = ["read_until"]

PAUSE_S = 0.05


def read_until(stop: Path, site: Site, report: Path) -> None:
    """Follow every alias to its weights until a file appears, then report polls and failures.

    Parameters
    ----------
    stop : Path
        Whose appearance ends the reading.
    site : Site
    report : Path
        Gets ``[n_polls, failures]`` as JSON.
    """
    client = MlflowClient(site.tracking.uri, site.tracking.uri)
    names = itertools.cycle(registered_model_name(NAME, cohort_id) for cohort_id in COHORTS)
    seen: set[str] = set()
    n_polls = 0
    failures: list[str] = []
    parent = os.getppid()
    while not stop.exists() and os.getppid() == parent:
        try:
            digest = _read_champion(client, name := next(names))
        except Exception as error:  # noqa: BLE001 - whatever a plant meets is a failure
            failures.append(f"{name}: {error}")
        else:
            if digest is None and name in seen:
                failures.append(f"{name}: the champion is gone")
            seen |= {name} if digest else set()
        n_polls += 1
        time.sleep(PAUSE_S)
    report.write_text(json.dumps([n_polls, failures]))


def _read_champion(client: MlflowClient, name: str) -> str | None:
    """Return the digest of a cohort's published weights, None where none was published yet.

    Raises
    ------
    ValueError
        If the weights are not those that the version says.
    """
    try:
        version = client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            return None
        raise
    found, wanted = weights_digest(str(version.source)), version.tags[TAG_DIGEST]
    if found != wanted:
        raise ValueError(f"weights {found[:12]}, tagged {wanted[:12]}")
    return found
