"""Rebuild MLflow from the ledger; what is there is left as it is, unless it is to be repaired.

    python -m flows.publish --store federations/demo --federation demo --repair

For after an outage, or after somebody deleted things: the ledger is the truth, MLflow a projection.
"""

from __future__ import annotations

if (
    __name__ == "__main__"
):  # Prefect reads its settings when it is imported: the command goes first.
    from flows._commands import run_publish_command

    run_publish_command()

from prefect import flow

from tasks.rebuild_tracking import Rebuilt, rebuild_tracking

__all__ = ["publish"]


@flow(name="publish")
def publish(
    store: str, federation: str, tracking_uri: str | None = None, repair: bool = False
) -> Rebuilt:
    """Publish every committed round that is not in MLflow yet.

    Parameters
    ----------
    store : str
        Folder or URL of the federation.
    federation : str
        Its name.
    tracking_uri : str, optional
        MLflow store to publish to; default: ``MLFLOW_TRACKING_URI``, or the project's own.
    repair : bool
        Write again or remove what is there and other than the ledger says.
    """
    return rebuild_tracking(store, federation, tracking_uri, repair)
