"""Fetch the model that a client trains on next, and note beside it what it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clma.cohorting.offers import offered_models
from clma.config import DriftConfig
from clma.errors import DamagedStoreError, UnknownClientError
from clma.ledger.durable_file import replace_files
from clma.ledger.federation import Federation
from clma.ledger.keys import printable
from clma.ledger.refusals import refusals_named
from clma.records import ClientState, ClientStatus, FederationState, model_ref

__all__ = [
    "ModelOfChoice",
    "PulledModel",
    "find_client",
    "models_of_choice",
    "note_path",
    "open_federation",
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
        Cohort that was left last round, if the federation asks whether its model is still bad.
    confirm_path : Path or None
        That cohort's model.
    choice : tuple of ModelOfChoice
        Where the federation's method lets clients choose: measure the loss of each on fresh data
        before training, train the best one, and send its digest and, if asked, all losses.
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
    choice: tuple[ModelOfChoice, ...] = ()
    proximal_mu: float = 0.0
    learning_rate_factor: float = 1.0


_NOTE = TypeAdapter(PulledModel)


def pull(url: str | Path | Federation, federation: str, client_id: str, out: Path) -> PulledModel:
    """Fetch a client's model.

    Parameters
    ----------
    url : str, Path or Federation
        The store, or the federation where it is open already.
    federation : str
        Its name.
    client_id : str
    out : Path
        Safetensors file to write; it is replaced at once or not at all. The facts of the result go
        to ``<out>.json``, so that a later `submit` knows round and base. The model to confirm, if
        any, goes to ``<stem>.origin.safetensors``, models to choose from to
        ``<stem>.<cohort>.safetensors``.

    Raises
    ------
    UnknownFederationError, UnknownClientError
        If the store holds another federation, or the client is not registered.
    DamagedStoreError
        If the model is missing or was changed.
    StorageError
        If the disk refuses; then nothing of the model is there under its name.
    """
    opened = open_federation(url, federation)
    state = opened.state()
    client = find_client(state, client_id)
    data = opened.store.get_verified(model_ref(client.serving_digest))
    confirm_cohort = _cohort_to_confirm(opened, state, client)
    confirm_path = None
    files: dict[Path, bytes] = {}
    if confirm_cohort is not None:
        confirm_path = out.with_name(f"{out.stem}.origin.safetensors")
        origin = state.cohorts[confirm_cohort].model_digest
        files[confirm_path] = opened.store.get_verified(model_ref(origin))
    choice = _models_of_choice(opened, state, client, out)
    files |= {m.path: opened.store.get_verified(model_ref(m.digest)) for m in choice[1:]}
    pulled = PulledModel(
        federation=state.federation,
        client_id=client_id,
        round_num=state.round_num,
        cohort_id=client.cohort_id,
        base_digest=client.serving_digest,
        path=out,
        deadline=state.deadline,
        drift=opened.config.drift,
        share_loss="loss" in opened.config.privacy.share,
        confirm_cohort=confirm_cohort,
        confirm_path=confirm_path,
        choice=choice,
        proximal_mu=opened.config.client.proximal_mu,
        learning_rate_factor=state.cohorts[client.cohort_id].learning_rate_factor,
    )
    # The note goes first: a model without its note would be taken for the one of the state.
    files[note_path(out)] = _NOTE.dump_json(pulled, indent=2)
    files[out] = data
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


def open_federation(url: str | Path | Federation, name: str) -> Federation:
    """Return an open federation of this name."""
    return url if isinstance(url, Federation) else Federation.open(url, name)


def find_client(state: FederationState, client_id: str) -> ClientState:
    """Return a registered client; UnknownClientError if there is none."""
    client = state.clients.get(client_id)
    if client is None or client.status is ClientStatus.FORGOTTEN:
        raise UnknownClientError(
            f"client '{printable(client_id)}' is not registered in federation {state.federation!r}"
        )
    return client


def _cohort_to_confirm(
    opened: Federation, state: FederationState, client: ClientState
) -> str | None:
    home = client.way_home()
    return home if opened.config.drift.confirm and home in state.cohorts else None


def models_of_choice(
    url: str | Path | Federation, federation: str, client_id: str
) -> dict[str, str]:
    """Return the models that a client may choose from now: cohort to digest; empty for no choice.

    Raises
    ------
    UnknownFederationError, UnknownClientError
        As `pull`.
    """
    opened = open_federation(url, federation)
    state = opened.state()
    offers = offered_models(state, find_client(state, client_id), opened.config)
    return {offer.cohort_id: offer.digest for offer in offers}


def _models_of_choice(
    opened: Federation, state: FederationState, client: ClientState, out: Path
) -> tuple[ModelOfChoice, ...]:
    return tuple(
        ModelOfChoice(
            offer.cohort_id,
            offer.digest,
            out if number == 0 else out.with_name(f"{out.stem}.{offer.cohort_id}.safetensors"),
            offer.trainable,
        )
        for number, offer in enumerate(offered_models(state, client, opened.config))
    )


def _replace(files: Mapping[Path, bytes]) -> None:
    size = sum(len(data) for data in files.values())
    names = ", ".join(path.name for path in files)
    folder = next(iter(files)).parent
    with refusals_named("written", names, str(folder), size):
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(files)
