"""Fetch the model that a client trains on next, and note beside it what it is."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clma.client.access import Access, Offer
from clma.client.download import OwnDiskError, download, is_there, put_in_place
from clma.client.patience import patiently
from clma.client.reach import is_gateway, reach
from clma.config import ChoiceRule, DriftConfig
from clma.errors import ClmaError, DamagedStoreError, StorageError, UnknownFederationError
from clma.ledger.federation import Federation
from clma.ledger.refusals import refusals_named
from clma.ledger.store import Store
from clma.updates.signing import SigningKey

__all__ = [
    "ModelOfChoice",
    "PulledModel",
    "models_of_choice",
    "note_path",
    "pull",
    "read_note",
    "store_is_away",
]


@dataclass(frozen=True, slots=True)
class ModelOfChoice:
    """One of several models to choose from.

    Parameters
    ----------
    cohort_id : str
    digest : str
        SHA-256 of the file.
    path : Path
    trainable : bool
        False: only its loss is asked for.
    """

    cohort_id: str
    digest: str
    path: Path
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class PulledModel:
    """A model on the plant's disk and what is expected of its training.

    Parameters
    ----------
    federation, client_id : str
    round_num : int
        Round that the model is for; 0 before the first one.
    cohort_id : str
    base_digest : str
        SHA-256 of the file.
    path : Path
    deadline : datetime or None
        When the round is due, in UTC.
    drift : DriftConfig
        How the federation wants drift to be looked for, for `DriftReporter`; its `loss_point` says
        which loss: ``before`` or ``after`` the training.
    share_loss : bool
        The policy lets the loss leave the plant.
    confirm_cohort : str or None
        Cohort that the federation asks about, as a rule the one that was left last round.
    confirm_path : Path or None
        That cohort's model.
    confirm_takes : bool
        If it is not bad, it is trained.
    choice : tuple of ModelOfChoice
        Where the federation lets clients choose, the own model first: measure the loss of each on
        fresh data before training, train the best one, and send its digest and, if asked, all
        losses.
    choice_rule : ChoiceRule or None
        When another model counts as better; None: if its mean loss is smaller.
    choice_on_drift : bool
        A client that raised its flag gets the models of all cohorts to choose from: pull again with
        ``drifted=True``.
    proximal_mu : float, >= 0
        FedProx: strength of the pull back to the model that training starts from.
    learning_rate_factor : float in (0, 1]
        Adaptive-FedAvg: what to multiply the learning rate by in this round.
    offline : str or None
        Why the store could not be reached: this is then what was pulled last, with nothing to
        choose from or to confirm.
    """

    federation: str
    client_id: str
    round_num: int
    cohort_id: str
    base_digest: str
    path: Path
    deadline: dt.datetime | None = None
    drift: DriftConfig = field(default_factory=DriftConfig)
    share_loss: bool = False
    confirm_cohort: str | None = None
    confirm_path: Path | None = None
    confirm_takes: bool = False
    choice: tuple[ModelOfChoice, ...] = ()
    choice_rule: ChoiceRule | None = None
    choice_on_drift: bool = False
    proximal_mu: float = 0.0
    learning_rate_factor: float = 1.0
    offline: str | None = None


_NOTE = TypeAdapter(PulledModel)


def pull(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    out: Path,
    *,
    drifted: bool = False,
    key: SigningKey | Path | None = None,
    attempts: int = 3,
) -> PulledModel:
    """Fetch a client's model; where the store cannot be reached, the one that was fetched last.

    Parameters
    ----------
    url : str, Path or Federation
        The store, the address of a gateway (``https://...``), or the federation where it is open
        already.
    federation : str
        Its name.
    client_id : str
    out : Path
        Safetensors file to write; it is replaced at once or not at all. The facts of the result go
        to ``<out>.json``, so that a later `submit` knows round and base. The model to confirm, if
        any, goes to ``<stem>.origin.safetensors``, models to choose from to
        ``<stem>.<cohort>.safetensors``. Files that are there already are not fetched again, and a
        fetch that was broken off goes on where it was.
    drifted : bool
        The client raised its flag on the model that it pulled before, whose `choice_on_drift` says
        that there are more to choose from then.
    key : SigningKey or Path, optional
        The client's private key or its file, which a gateway wants to see used; default: the file
        that ``CLMA_CLIENT_KEY`` names.
    attempts : int, >= 1
        How often a store that does not answer is asked; a gateway is asked six times in any case.

    Returns
    -------
    PulledModel
        Its `offline` says if the store could not be reached: a plant has a model every night, once
        it had one.

    Raises
    ------
    UnknownFederationError, UnknownClientError
        If the store holds another federation, or the client is not registered.
    DamagedStoreError
        If the model is missing or was changed.
    StorageError
        If the plant's own disk refuses; then nothing of the model is there under its name. Also if
        the store cannot be reached and no whole model of this client is there from before.
    UnauthorizedError, InvalidConfigError
        If a gateway does not know the key, or there is none.
    """
    try:
        pulled, parts = patiently(
            lambda: _fetch(
                reach(url, federation, client_id, key=key), client_id, out, drifted=drifted
            ),
            attempts=1 if is_gateway(url) else attempts,
        )
    except (StorageError, UnknownFederationError) as error:
        if not store_is_away(url, error):
            raise
        return _last_good(out, federation, client_id, error)
    put_in_place(parts, note_path(out), _NOTE.dump_json(pulled, indent=2))
    return pulled


def _fetch(
    access: Access, client_id: str, out: Path, *, drifted: bool
) -> tuple[PulledModel, dict[Path, Path]]:
    """Ask what a client gets and download it, not yet under its name."""
    offer = access.offer(drifted=drifted)
    choice = _models_of_choice(offer, out)
    wanted = {m.path: m.digest for m in choice[1:]}
    asked, confirm_path = offer.asked, None
    if asked is not None:
        paths = {m.cohort_id: m.path for m in choice[1:]}
        spare = out.with_name(f"{out.stem}.origin.safetensors")
        confirm_path = paths.get(asked.cohort_id, spare)
        wanted[confirm_path] = asked.digest
    wanted[out] = offer.base_digest
    pulled = PulledModel(
        federation=offer.federation,
        client_id=client_id,
        round_num=offer.round_num,
        cohort_id=offer.cohort_id,
        base_digest=offer.base_digest,
        path=out,
        deadline=offer.deadline,
        drift=offer.drift,
        share_loss=offer.share_loss,
        confirm_cohort=None if asked is None else asked.cohort_id,
        confirm_path=confirm_path,
        confirm_takes=asked is not None and asked.takes,
        choice=choice,
        choice_rule=offer.choice_rule,
        choice_on_drift=offer.choice_on_drift,
        proximal_mu=offer.proximal_mu,
        learning_rate_factor=offer.learning_rate_factor,
    )
    return pulled, download(access, wanted)


def store_is_away(url: str | Path | Federation, error: ClmaError) -> bool:
    """Tell a store that cannot be reached from a plant's own disk that refuses, or a wrong name."""
    if isinstance(error, StorageError):
        return not isinstance(error, OwnDiskError)
    if is_gateway(url):
        return False
    folder = (url.store if isinstance(url, Federation) else Store.open(url)).folder
    # A network folder that is not mounted looks like one that was never made.
    return folder is not None and not folder.exists()


def _last_good(out: Path, federation: str, client_id: str, error: ClmaError) -> PulledModel:
    """Return what was pulled last if it is whole; else raise what happened now."""
    try:
        note = read_note(out)
    except (DamagedStoreError, StorageError):
        note = None
    whose = (federation, client_id)
    if note is None or (note.federation, note.client_id) != whose:
        raise error
    if not is_there(out, note.base_digest):
        raise error
    return replace(
        note,
        path=out,
        confirm_cohort=None,
        confirm_path=None,
        confirm_takes=False,
        choice=(),
        offline=str(error),
    )


def note_path(model: Path) -> Path:
    """Return where `pull` notes what it wrote to a file."""
    return model.with_name(model.name + ".json")


def read_note(model: Path) -> PulledModel | None:
    """Return what `pull` noted beside a file, or None where there is no note.

    Raises
    ------
    DamagedStoreError
        If the note is none.
    StorageError
        If it cannot be read.
    """
    path = note_path(model)
    try:
        with refusals_named("read", path.name, str(path.parent)):
            return _NOTE.validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError:
        raise DamagedStoreError(f"{path} is not the note of a pulled model; pull again") from None


def models_of_choice(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    *,
    key: SigningKey | Path | None = None,
) -> dict[str, str]:
    """Return the models that a client may choose from now: cohort to digest; empty for no choice.

    Raises
    ------
    UnknownFederationError, UnknownClientError, InvalidConfigError
        As `pull`.
    """
    access = reach(url, federation, client_id, key=key)
    return {model.cohort_id: model.digest for model in access.offer(drifted=True).choice}


def _models_of_choice(offer: Offer, out: Path) -> tuple[ModelOfChoice, ...]:
    return tuple(
        ModelOfChoice(
            model.cohort_id,
            model.digest,
            out if number == 0 else out.with_name(f"{out.stem}.{model.cohort_id}.safetensors"),
            model.trainable,
        )
        for number, model in enumerate(offer.choice)
    )
