"""Fetch the model that a client trains on next, and note beside it what it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clma.client.access import Offer
from clma.client.reach import reach
from clma.config import ChoiceRule, DriftConfig
from clma.errors import DamagedStoreError
from clma.ledger.durable_file import replace_files
from clma.ledger.federation import Federation
from clma.ledger.refusals import refusals_named
from clma.ledger.store import file_digest
from clma.updates.signing import SigningKey

__all__ = [
    "ModelOfChoice",
    "PulledModel",
    "models_of_choice",
    "note_path",
    "pull",
    "read_note",
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


_NOTE = TypeAdapter(PulledModel)


def pull(
    url: str | Path | Federation,
    federation: str,
    client_id: str,
    out: Path,
    *,
    drifted: bool = False,
    key: SigningKey | Path | None = None,
) -> PulledModel:
    """Fetch a client's model.

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
        ``<stem>.<cohort>.safetensors``.
    drifted : bool
        The client raised its flag on the model that it pulled before, whose `choice_on_drift` says
        that there are more to choose from then. Files that are there already are not fetched again.
    key : SigningKey or Path, optional
        The client's private key or its file, which a gateway wants to see used; default: the file
        that ``CLMA_CLIENT_KEY`` names.

    Raises
    ------
    UnknownFederationError, UnknownClientError
        If the store holds another federation, or the client is not registered.
    DamagedStoreError
        If the model is missing or was changed.
    StorageError
        If the disk refuses, or a gateway does not answer; then nothing of the model is there under
        its name.
    UnauthorizedError, InvalidConfigError
        If a gateway does not know the key, or there is none.
    """
    access = reach(url, federation, client_id, key=key)
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
    fetched = {
        path: access.model(digest)
        for path, digest in wanted.items()
        if not (drifted and _is_there(path, digest))
    }
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
    # The note goes first: a model without its note would be taken for the one of the state.
    files = {note_path(out): _NOTE.dump_json(pulled, indent=2), **fetched}
    _replace(files)
    return pulled


def note_path(model: Path) -> Path:
    """Return where `pull` notes what it wrote to a file."""
    return model.with_name(model.name + ".json")


def read_note(model: Path) -> PulledModel | None:
    """Return what `pull` noted beside a file, or None where there is no note.

    Raises
    ------
    DamagedStoreError
        If the note cannot be read.
    """
    path = note_path(model)
    try:
        return _NOTE.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise DamagedStoreError(f"{path} is not the note of a pulled model; pull again") from None


def _is_there(path: Path, digest: str) -> bool:
    try:
        return file_digest(path) == digest
    except OSError:
        return False


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


def _replace(files: Mapping[Path, bytes]) -> None:
    size = sum(len(data) for data in files.values())
    names = ", ".join(path.name for path in files)
    folder = next(iter(files)).parent
    with refusals_named("written", names, str(folder), size):
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(files)
