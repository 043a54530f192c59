"""Compare MLflow with the ledger, of which it is a projection; nothing is made or changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from mlflow.exceptions import MlflowException

from clma.doctor import Difference
from clma.errors import ClmaError
from clma.ledger.federation import Federation
from tasks.tracking.compare_runs import run_findings
from tasks.tracking.compare_versions import version_findings
from tasks.tracking.findings import PLACE, Finding, Look, Trouble, differences
from tasks.tracking.history import History
from tasks.tracking.inventory import open_client, take_inventory
from tasks.tracking.location import Tracking, wanted_tracking
from tasks.tracking.names import TAG_FORGOTTEN, TAG_IDENTITY
from tasks.tracking.outage import TrackingAwayError

__all__ = ["comparison_with", "findings", "pending_forgettings"]

_QUIET_S = 2.0
"""A comparison that takes longer says how far it is, and again after as long."""


def comparison_with(
    tracking_uri: str | None,
    *,
    thorough: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Callable[[Federation], Iterable[Difference]]:
    """Return what compares a federation with MLflow.

    Parameters
    ----------
    tracking_uri : str or None
        As `wanted_tracking` takes it.
    thorough : bool
        Look at all files of all rounds and versions, wherever they are.
    on_progress : callable, optional
        Told in one line how far it is, if it takes longer than two seconds.
    """

    def compare(federation: Federation) -> list[Difference]:
        publish = f"python -m flows.publish --store {federation.store.url} "
        publish += f"--federation {federation.name}"
        try:
            tracking = wanted_tracking(tracking_uri)
            publish += f" --tracking-uri {tracking.shown}" if tracking_uri else ""
            found = _compare(federation, tracking, thorough, publish, on_progress)
        except TrackingAwayError as error:
            return [Difference(PLACE, str(error), f"see that it runs, then {publish}")]
        except (ClmaError, MlflowException) as error:
            text = " ".join(str(error).split())
            return [Difference(PLACE, f"not compared: {text}", "mend that, then look again")]
        return found

    return compare


def findings(look: Look) -> Iterator[Finding]:
    """Yield what is not as the ledger says.

    Clients that were forgotten come first and alone: carrying that over writes rounds anew.
    """
    if look.inventory.is_deleted:
        yield Finding(Trouble.EXPERIMENT_DELETED, look.federation.name)
        return
    pending = pending_forgettings(look.history, look.inventory.tags)
    if pending:
        for number in pending:
            yield Finding(Trouble.NOT_FORGOTTEN, f"{number:08d}.json")
        return
    yield from run_findings(look)
    yield from version_findings(look)


def pending_forgettings(history: History, tags: Mapping[str, str]) -> list[int]:
    """Return the numbers of the ledger entries that forget a client and were not carried over."""
    tag = tags.get(TAG_FORGOTTEN, "")
    # Anybody can write into a tag.
    done = int(tag) if tag.isdecimal() else -1
    return [f.number for f in history.forgettings if f.number > done]


def _compare(
    federation: Federation,
    tracking: Tracking,
    thorough: bool,
    publish: str,
    on_progress: Callable[[str], None] | None,
) -> list[Difference]:
    history = History(federation)
    client = open_client(tracking)
    inventory = None if client is None else take_inventory(client, tracking, federation.name)
    if inventory is None:
        missing = [Finding(Trouble.EXPERIMENT_MISSING, federation.name)] if history.rounds else []
        return differences(missing, publish)
    owner, identity = inventory.tags.get(TAG_IDENTITY), federation.identity()
    if owner not in {None, identity}:
        return [
            Difference(
                PLACE,
                f"experiment {federation.name!r} holds another federation of that name "
                f"({str(owner)[:12]}, this one is {identity[:12]})",
                f"mlflow experiments rename --experiment-id {inventory.experiment_id} "
                f"--new-name {federation.name}-before, then {publish}",
            )
        ]
    told = _seldom(on_progress)
    return differences(
        findings(Look(federation, history, inventory, tracking, thorough, told)), publish
    )


def _seldom(on_progress: Callable[[str], None] | None) -> Callable[[str], None]:
    """Pass a line on only every two seconds, and none in the first two."""
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        if on_progress is not None and time.monotonic() - last > _QUIET_S:
            last = time.monotonic()
            on_progress(line)

    return tell
