"""What is asked of an onboarding, and what became of it, as a flow's parameter and result."""

from __future__ import annotations

from dataclasses import dataclass

from clma.config import override_config
from clma.errors import InvalidConfigError, RoundStateError
from clma.ledger.federation import Federation
from clma.onboarding.record import CohortRecord
from clma.records import ArtifactRef, Phase

__all__ = ["FormedCohorts", "Onboarded", "OnboardingRequest", "check_request"]


@dataclass(frozen=True, slots=True)
class OnboardingRequest:
    """Whose cohorts are formed, and whether they are put in force.

    Parameters
    ----------
    store, federation : str
    settings : tuple of str
        ``onboarding.key=value`` to form them with, for a look at what would be.
    apply : bool
        Put them in force: round 1 opens with them, or, `again`, clients move when the next round
        opens.
    again : bool
        The fleet has cohorts already.
    allow_missing : bool
        Clients without a usable signature wait in the root cohort.
    picture : str or None
        File for the curve and the map, PNG.
    """

    store: str
    federation: str
    settings: tuple[str, ...] = ()
    apply: bool = False
    again: bool = False
    allow_missing: bool = False
    picture: str | None = None


@dataclass(frozen=True, slots=True)
class FormedCohorts:
    """Cohorts as they were formed.

    Parameters
    ----------
    record : CohortRecord
    ref : ArtifactRef or None
        Where the record is kept; None for a look.
    """

    record: CohortRecord
    ref: ArtifactRef | None


@dataclass(frozen=True, slots=True)
class Onboarded:
    """What became of a request.

    Parameters
    ----------
    record : CohortRecord
    in_force_from : int or None
        Round that opened, or will open, with the cohorts; None for a look.
    """

    record: CohortRecord
    in_force_from: int | None


def check_request(federation: Federation, request: OnboardingRequest) -> None:
    """Refuse what cannot be done, before anything is read.

    Raises
    ------
    InvalidConfigError
        If a setting is none of ``[onboarding]``, or settings are to be put in force.
    RoundStateError
        If the fleet has cohorts and `again` was not asked for, or the other way round.
    """
    strange = [s for s in request.settings if not s.startswith("onboarding.")]
    if strange:
        raise InvalidConfigError(f"--set {strange[0]}: wanted onboarding.KEY=VALUE")
    override_config(federation.config, request.settings)
    if request.settings and request.apply:
        raise InvalidConfigError(
            "--set shows what would be; put it in force with 'clma configure --set "
            f"{request.settings[0]}', then --apply"
        )
    state = federation.state()
    if not request.apply:
        return
    if state.phase is Phase.CREATED and request.again:
        raise RoundStateError(
            f"federation {federation.name!r} has no cohorts to form anew: give --apply alone"
        )
    if state.phase is not Phase.CREATED and not request.again:
        raise RoundStateError(
            f"federation {federation.name!r} has cohorts since round 1: give --apply --again to "
            "form them anew"
        )
