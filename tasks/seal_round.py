"""Fix the inputs of a round."""

from __future__ import annotations

import datetime as dt

from prefect import get_run_logger, task

from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.keys import entry_key
from clma.ledger.preflight import Health, check_store, refuse_impossible
from clma.records import Phase
from clma.rows import Verdict
from tasks.brief_log import log_lines
from tasks.choose_round import ChosenRound
from tasks.night import IO_RETRIES, PINNED_TO_RUN, Night

__all__ = ["seal_round"]


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="seal round {chosen.round_num}")
def seal_round(store: str, federation: str, chosen: ChosenRound) -> Night:
    """Read the inbox through the validator and record what was accepted; sealing is once.

    A round that cannot be written whatever its updates are is not sealed; less than that is logged.
    """
    opened = Federation.open(store, federation)
    state = opened.state()
    if state.phase is Phase.OPEN and state.round_num == chosen.round_num:
        _check_disk(opened)
        now = dt.datetime.now(dt.UTC)
        opened.seal_round(now=now, force=True, round_num=chosen.round_num)
    round_num = chosen.round_num or state.round_num
    sealed = opened.sealed_round(round_num)
    log = get_run_logger()
    refused = (row for row in sealed.rows if row.verdict is not Verdict.ACCEPTED)
    lines = (f"{row.client_id}: {row.verdict.value} {row.detail or row.reason}" for row in refused)
    log_lines(log.warning, lines, "updates")
    log.info("sealed round %d: %d updates accepted", round_num, len(sealed.updates))
    digest = opened.entry_digest(EntryKind.ROUND_SEALED, round_num)
    folder = opened.store.info(entry_key(0)).identity
    return Night(store, federation, round_num, digest or "", len(sealed.updates), folder)


def _check_disk(federation: Federation) -> None:
    findings = check_store(federation, now=dt.datetime.now(dt.UTC))
    for finding in findings:
        if finding.health is not Health.OK:
            get_run_logger().warning("%s: %s", finding.check, finding.detail)
    refuse_impossible(findings)
