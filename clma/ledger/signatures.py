"""Read the signatures of their data that clients dropped, and keep those that are used.

One bad file costs that client its placement and nothing else: whatever is found becomes a signature
or a line that says why not. In a federation that signs, only what the client signed is its own.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clma.config import FederationConfig
from clma.errors import (
    DamagedStoreError,
    InvalidUpdateError,
    MissingObjectError,
    StorageError,
)
from clma.ledger.keys import (
    SIGNATURES_PREFIX,
    kept_signature_key,
    kept_signatures_prefix,
    printable,
    signature_key,
    signatures_of,
)
from clma.ledger.refusals import SENDERS_FAULTS
from clma.ledger.side_by_side import side_by_side
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState
from clma.signatures.file import LIMITS, read_signature
from clma.signatures.message import (
    MAX_MESSAGE_BYTES,
    SignatureMessage,
    check_signer,
    parse_message,
)
from clma.signatures.signature import Signature
from clma.updates.reasons import Reason

__all__ = ["Collected", "KeptSignature", "NewestMessage", "collect_signatures", "newest_message"]

MAX_MESSAGES = 256
"""Looked at per client: each change of its data may bring one, and a stranger may drop some."""

FAR_OUT = 1000.0
"""Times the median length of all clients' means: units were mixed up, or somebody wants the centre
of the distances for itself."""


_MESSAGE = re.compile(rf"{SIGNATURES_PREFIX}/([^/]+)/[0-9a-f]{{64}}\.json")


@dataclass(frozen=True, slots=True)
class NewestMessage:
    """A client's newest message, and when the store got it."""

    message: SignatureMessage
    received_at: dt.datetime


@dataclass(frozen=True, slots=True, eq=False)
class KeptSignature:
    """A signature that can be used.

    Parameters
    ----------
    signature : Signature
    ref : ArtifactRef
        Where a copy out of the client's reach lies, or would lie.
    received_at : datetime or None
        None for one that is read again.
    """

    signature: Signature
    ref: ArtifactRef
    received_at: dt.datetime | None = None

    @property
    def space(self) -> tuple[str, int]:
        """Encoder and number of features: only embeddings of one space compare."""
        return self.signature.encoder, int(self.signature.arrays["means"].shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What clients sent.

    Parameters
    ----------
    found : mapping of client id to KeptSignature
        All of one encoder.
    refused : mapping of client id to str
        One line each.
    missing : tuple of client id
        Of whom nothing came.
    """

    found: Mapping[str, KeptSignature]
    refused: Mapping[str, str]
    missing: tuple[str, ...]

    @property
    def signatures(self) -> dict[str, Signature]:
        """The signatures by client id."""
        return {client_id: kept.signature for client_id, kept in self.found.items()}


def collect_signatures(
    store: Store,
    state: FederationState,
    config: FederationConfig,
    client_ids: Sequence[str],
    *,
    round_num: int,
    keep: bool,
    space: tuple[str, int] | None = None,
) -> Collected:
    """Judge the newest signature of each client.

    Parameters
    ----------
    store : Store
    state : FederationState
    config : FederationConfig
    client_ids : sequence of str
        Registered ones.
    round_num : int
        Under which copies are kept: the round that they place clients for.
    keep : bool
        Keep copies of those that are used; otherwise nothing is written.
    space : (str, int), optional
        Encoder and number of features that all have to have; default: those of the most, of
        ``onboarding.encoder`` if one is named.

    Raises
    ------
    InvalidUpdateError
        If no encoder is named and two are equally frequent.
    """
    sent = _messages_by_client(store)

    def judged(client_id: str) -> KeptSignature | str | None:
        if not sent.get(client_id):
            return None
        return _judge(store, state, config, client_id, sent[client_id], round_num, keep)

    results = dict(zip(client_ids, side_by_side(judged, client_ids), strict=True))
    found = {c: r for c, r in results.items() if isinstance(r, KeptSignature)}
    refused = {c: r for c, r in results.items() if isinstance(r, str)}
    others = _of_other_spaces(found, config.onboarding.encoder, space) | _far_out(found)
    kept = {c: r for c, r in sorted(found.items()) if c not in others}
    if keep:
        for client_id in others:
            store.delete(found[client_id].ref.path)
        store.sync(kept_signatures_prefix(round_num))
    missing = tuple(sorted(c for c, r in results.items() if r is None))
    return Collected(kept, dict(sorted({**refused, **others}.items())), missing)


def newest_message(
    store: Store, state: FederationState, config: FederationConfig, client_id: str
) -> NewestMessage | None:
    """Return the newest message that is the client's own, None if there is none."""
    keys = [k for k in store.list(signatures_of(client_id)) if _MESSAGE.fullmatch(k)]
    try:
        return _newest(store, state, config, client_id, keys)
    except (InvalidUpdateError, MissingObjectError):
        return None


def _messages_by_client(store: Store) -> dict[str, list[str]]:
    sent: dict[str, list[str]] = {}
    for key in store.list(SIGNATURES_PREFIX):
        if named := _MESSAGE.fullmatch(key):
            sent.setdefault(named[1], []).append(key)
    return sent


def _judge(
    store: Store,
    state: FederationState,
    config: FederationConfig,
    client_id: str,
    keys: Sequence[str],
    round_num: int,
    keep: bool,
) -> KeptSignature | str:
    try:
        newest = _newest(store, state, config, client_id, keys)
        return _take(store, newest, round_num, keep)
    except MissingObjectError:
        return f"client '{client_id}': the message or the tensors of its signature are not there"
    except (InvalidUpdateError, DamagedStoreError) as error:
        text = printable(str(error), 400)
    except StorageError as error:
        if error.errno not in SENDERS_FAULTS:
            raise
        text = printable(str(error), 400)
    return text if text.startswith("client '") else f"client '{client_id}': {text}"


def _newest(
    store: Store,
    state: FederationState,
    config: FederationConfig,
    client_id: str,
    keys: Sequence[str],
) -> NewestMessage:
    if len(keys) > MAX_MESSAGES:
        raise InvalidUpdateError(
            f"client '{client_id}': {len(keys)} messages of signatures, at most {MAX_MESSAGES} "
            "are looked at",
            Reason.CONFLICTING_UPDATE,
        )
    refusal: InvalidUpdateError | None = None
    found: list[tuple[dt.datetime, str, SignatureMessage]] = []
    for key in sorted(keys):
        try:
            info, data = store.look(key, max_bytes=MAX_MESSAGE_BYTES)
            message = parse_message(data)
            _check_own(message, state, config, client_id)
            found.append((info.modified, key, message))
        except InvalidUpdateError as error:
            refusal = error
        except DamagedStoreError:
            continue
        except StorageError as error:
            if error.errno not in SENDERS_FAULTS:
                raise
    if not found:
        raise refusal or MissingObjectError(f"client '{client_id}': no message")
    received_at, _, message = max(found, key=lambda one: one[:2])
    return NewestMessage(message, received_at)


def _check_own(
    message: SignatureMessage, state: FederationState, config: FederationConfig, client_id: str
) -> None:
    wanted = (state.federation, client_id)
    got = (message.federation, message.client_id)
    if got != wanted:
        raise InvalidUpdateError(
            f"message is of client '{printable(got[1])}' of federation '{printable(got[0])}'",
            Reason.BAD_CLIENT_ID,
        )
    if config.identity.updates == "signed":
        check_signer(message, state.keys.get(client_id, ()))


def _take(store: Store, newest: NewestMessage, round_num: int, keep: bool) -> KeptSignature:
    message = newest.message
    client_id, digest = message.client_id, message.tensors_sha256
    source = signature_key(client_id, digest, "safetensors")
    if (size := store.info(source).size_bytes) > LIMITS.file_bytes:
        raise InvalidUpdateError(
            f"client '{client_id}': signature of {size} bytes, at most {LIMITS.file_bytes} are read"
        )
    target = kept_signature_key(round_num, client_id, digest)
    # A copy of our own is checked and kept: the client can still write to its file.
    with store.intake(source, target, max_bytes=LIMITS.file_bytes) as copy:
        if copy.sha256 != digest:
            raise InvalidUpdateError(
                f"client '{client_id}': tensors have {copy.sha256[:12]}, "
                f"message says {digest[:12]}",
                Reason.DIGEST_MISMATCH,
            )
        signature = read_signature(copy.path, message.kind, message.encoder)
        ref = copy.keep() if keep else ArtifactRef(target, digest)
    return KeptSignature(signature, ref, newest.received_at)


def _of_other_spaces(
    found: Mapping[str, KeptSignature], encoder: str, space: tuple[str, int] | None
) -> dict[str, str]:
    """Return a line for each client whose embeddings are of another space than the fleet's."""
    spaces = {c: kept.space for c, kept in found.items()}
    ours = space or _most_frequent([s for s in spaces.values() if encoder in {"", s[0]}])
    wanted = f"wanted {_name(ours or (encoder, 0))}"
    return {
        c: f"client '{c}': signature was made with {_name(s)}, {wanted}"
        for c, s in spaces.items()
        if s != ours
    }


def _most_frequent(spaces: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    counts = Counter(spaces).most_common(2)
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        named = " and ".join(f"{n} with {_name(space)}" for space, n in sorted(counts))
        raise InvalidUpdateError(
            f"signatures of two encoders, {named}: name the one that counts in onboarding.encoder"
        )
    return counts[0][0] if counts else None


def _name(space: tuple[str, int]) -> str:
    encoder, n_features = space
    return f"encoder '{printable(encoder, 12)}'" + (f" ({n_features} features)" * (n_features > 0))


def _far_out(found: Mapping[str, KeptSignature]) -> dict[str, str]:
    lengths = {c: float(np.abs(k.signature.arrays["means"]).max()) for c, k in found.items()}
    usual = float(np.median(list(lengths.values()))) if lengths else 0.0
    return {
        c: f"client '{c}': class means of up to {length:.3g}, others' are around {usual:.3g}: are "
        "its units the fleet's?"
        for c, length in lengths.items()
        if len(lengths) > 2 and length > FAR_OUT * usual
    }
