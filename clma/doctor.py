"""Compare the ledger with the disk, the settings, the clock and MLflow, and say what mends what.

Nothing is changed. What a projection of the ledger (MLflow, Prefect) holds is compared by whoever
knows it: `projections` are callables, so that this module needs no server software.

Examples
--------
>>> Difference("mlflow", "round 7 is not published", "python -m flows.publish").line
'mlflow: round 7 is not published; python -m flows.publish'
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from clma.errors import DamagedStoreError, InvalidConfigError
from clma.ledger.audit import audit
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.federation import Federation
from clma.ledger.keys import CHECKPOINTS_PREFIX
from clma.ledger.preflight import Finding, Health, check_store
from clma.onboarding import ONBOARD
from clma.parameters.output_layer import NO_LAYER, output_tensors
from clma.parameters.tensor_header import TensorFileError
from clma.records import ClientStatus, FederationState, Phase

__all__ = ["Difference", "DoctorReport", "Projection", "examine"]

NIGHTLY = "python -m flows.nightly --store {store} --federation {name}"

_LATE = dt.timedelta(hours=24)
"""A round that nobody closed for so long after its deadline has no schedule."""

_STUCK = dt.timedelta(hours=1)
"""A night takes minutes: what was sealed so long ago and not decided was stopped."""

_FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as the ledger says.

    Parameters
    ----------
    place : str
        ``ledger``, ``disk``, ``settings``, ``clients``, ``rounds``, ``mlflow`` ...
    what : str
        One line.
    mend : str
        What to do about it: a command where one exists.
    """

    place: str
    what: str
    mend: str

    @property
    def line(self) -> str:
        """Both in one line."""
        return f"{self.place}: {self.what}; {self.mend}"


Projection = Callable[[Federation], Iterable[Difference]]
"""Compares what a server shows with the ledger."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What was looked at and what was found.

    Parameters
    ----------
    n_entries, n_artifacts : int
        Of the ledger; artifacts were hashed again.
    findings : tuple of Finding
        Of the place: rights, room, clock; the good ones too.
    differences : tuple of Difference
        Empty if all is well.
    notes : tuple of str
        What is well and still worth knowing, a line each.
    """

    n_entries: int
    n_artifacts: int
    findings: tuple[Finding, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Tell whether nothing has to be mended."""
        return not self.differences


def examine(
    federation: Federation, *, now: dt.datetime, projections: Sequence[Projection] = ()
) -> DoctorReport:
    """Look at everything that can be out of step with the ledger.

    Parameters
    ----------
    federation : Federation
    now : datetime
        With a zone.
    projections : sequence of callable
        Comparisons with servers.
    """
    try:
        report = audit(federation)
    except DamagedStoreError as error:
        broken = Difference("ledger", str(error), _restore("ledger/ and head.json"))
        return DoctorReport(0, 0, (), (broken,))
    differences = [_of_audit(problem) for problem in report.problems]
    findings = check_store(federation, now=now)
    differences += [_of_place(f) for f in findings if f.health is not Health.OK]
    state = federation.state()
    differences += _of_rounds(federation, state, now)
    differences += _of_clients(federation, state)
    for projection in projections:
        differences += projection(federation)
    return DoctorReport(
        report.n_entries,
        report.n_artifacts,
        findings,
        tuple(differences),
        tuple(_on_output_layer(federation)),
    )


def _of_audit(problem: str) -> Difference:
    what, _, mend = problem.partition(": ")
    if _FORGOTTEN in problem:
        return Difference("disk", what, mend)
    if problem.startswith("federation.toml"):
        what, _, mend = problem.partition("; ")
        return Difference("settings", what, mend or "'clma configure' writes it again")
    if problem.startswith("head.json"):
        return Difference("ledger", problem, "the next night writes it; compare with a backup now")
    if problem.startswith(CHECKPOINTS_PREFIX):
        mend = "nothing is lost: nights read the ledger until the next round opens and writes one"
        return Difference("disk", problem, mend)
    return Difference("disk", problem, _restore(problem.split()[0]))


def _of_place(finding: Finding) -> Difference:
    what, _, mend = finding.detail.partition("; ")
    return Difference("disk", what, mend or "see docs/nights.md")


def _on_output_layer(federation: Federation) -> Iterator[str]:
    cohorting = federation.config.cohorting
    if cohorting.output_weight == 0 or cohorting.output_layer == NO_LAYER:
        return
    try:
        found = output_tensors(federation.spec, cohorting)
    except (DamagedStoreError, TensorFileError, InvalidConfigError):
        return  # the audit has told, and a name that the model lacks is never configured
    if not found:
        yield (
            "no output layer can be told from the model's shapes, whole updates are compared; "
            "name it: clma configure --set cohorting.output_layer=LAYER, or none"
        )


def _of_rounds(
    federation: Federation, state: FederationState, now: dt.datetime
) -> Iterator[Difference]:
    nightly = NIGHTLY.format(store=federation.store.url, name=federation.name)
    newest = federation.journal.newest_entry()
    if state.phase is Phase.CREATED:
        forms = federation.config.onboarding.method != "none"
        mend = ONBOARD.format(store=federation.store.url, name=federation.name)
        yield Difference("rounds", "no round was opened yet", mend if forms else nightly)
    elif state.phase is Phase.OPEN and state.deadline and now - state.deadline > _LATE:
        due = f"{state.deadline:%F %R} UTC"
        yield Difference("rounds", f"round {state.round_num} was due at {due}", nightly)
    elif state.phase is Phase.SEALED and now - newest.at > _STUCK:
        since = f"{newest.at:%F %R} UTC"
        what = f"round {state.round_num} is sealed since {since} and not decided"
        yield Difference("rounds", what, nightly)
    elif state.phase in {Phase.COMMITTED, Phase.HELD} and now - newest.at > _STUCK:
        what = f"round {state.round_num} is {state.phase.value} and the next one is not open"
        yield Difference("rounds", what, nightly)
    yield from _held_in_a_row(federation.entries(), nightly)


def _held_in_a_row(entries: Sequence[Entry], nightly: str) -> Iterator[Difference]:
    n_held, reason = 0, ""
    for entry in reversed(entries):
        if entry.kind is EntryKind.ROUND_COMMITTED:
            break
        if entry.kind is EntryKind.ROUND_HELD:
            n_held += 1
            reason = reason or str(entry.payload.get("reason", ""))
    if n_held:
        rounds = "round was" if n_held == 1 else f"{n_held} rounds were"
        yield Difference("rounds", f"the last {rounds} held: {reason}", f"then {nightly}")


def _of_clients(federation: Federation, state: FederationState) -> Iterator[Difference]:
    if federation.config.identity.updates != "signed":
        return
    away = {ClientStatus.FORGOTTEN, ClientStatus.PAUSED}
    mute = [
        client.client_id
        for client in state.clients.values()
        if client.status not in away
        and not any(k.revoked_round is None for k in state.keys.get(client.client_id, ()))
    ]
    if mute:
        shown = ", ".join(mute[:5]) + (f" and {len(mute) - 5} more" if len(mute) > 5 else "")
        yield Difference(
            "clients",
            f"{len(mute)} cannot send for want of a valid key: {shown}",
            "'clma client keygen' at the plant, then 'clma key add'",
        )


def _restore(what: str) -> str:
    return f"restore {what} from a backup of the folder"
