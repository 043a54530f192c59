"""What happened in a federation: its chain, its states, the sealed inputs of its rounds."""

from __future__ import annotations

import hashlib

from clma.errors import DamagedStoreError, RoundStateError
from clma.ledger.artifacts import ArtifactShelf
from clma.ledger.chain import Entry, EntryKind
from clma.ledger.journal import Journal
from clma.ledger.sealed import parse_sealed
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState
from clma.rows import SealedRound

__all__ = ["FederationHistory"]


class FederationHistory(ArtifactShelf):
    """Reads a federation's past.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.journal = Journal(store)

    def entries(self) -> tuple[Entry, ...]:
        """Return the whole chain, with what other writers added since the last look."""
        return self.journal.entries()

    def state(self) -> FederationState:
        """Return the state after the newest entry."""
        return self.journal.state()

    def identity(self) -> str:
        """Return the SHA-256 of the first entry: it tells two federations of one name apart."""
        return self.journal.identity()

    def read_recorded(self, ref: ArtifactRef) -> bytes:
        """Return an artifact as the ledger names it, or as forgetting a client left it.

        Raises
        ------
        DamagedStoreError
            If it is missing or is neither.
        """
        data = self.store.get(ref.path)
        digest = hashlib.sha256(data).hexdigest()
        # Until forgetting has come to this file, it is what it was.
        if digest != ref.sha256 and digest != self.replaced_artifacts().get(ref.path):
            raise DamagedStoreError(
                f"{ref.path} has SHA-256 {digest[:12]}..., recorded is {ref.sha256[:12]}..."
            )
        return data

    def replaced_artifacts(self) -> dict[str, str]:
        """Return path to SHA-256 of the artifacts that were rewritten to forget a client."""
        replaced: dict[str, str] = {}
        for entry in self.journal.forgettings():
            replaced |= entry.payload["replaced"]
        return replaced

    def committed_rounds(self) -> tuple[int, ...]:
        """Return the numbers of the committed rounds, rising."""
        return tuple(sorted(self.journal.newest().committed))

    def load_sealed(self) -> SealedRound:
        """Return the inputs of the newest round; RoundStateError if it is not sealed."""
        return self.sealed_round(self.state().round_num)

    def sealed_round(self, round_num: int) -> SealedRound:
        """Return the recorded inputs of a round.

        Raises
        ------
        RoundStateError
            If the round was never sealed.
        DamagedStoreError
            If the record was changed since.
        """
        payload = self._sealed_entry(round_num).payload
        return parse_sealed(self.read_recorded(ArtifactRef(**payload["sealed"])))

    def state_at_seal(self, round_num: int) -> FederationState:
        """Return the state right after a round was sealed: what its decision starts from.

        Raises
        ------
        RoundStateError
            If the round was never sealed.
        """
        return self.journal.state_after(self._sealed_entry(round_num).number)

    def state_at_commit(self, round_num: int) -> FederationState:
        """Return the state right after a round was committed, before the next one opened.

        Raises
        ------
        RoundStateError
            If the round is not committed.
        """
        entry = self.journal.find(EntryKind.ROUND_COMMITTED, round_num)
        if entry is None:
            raise RoundStateError(
                f"round {round_num} of {self.state().federation} is not committed"
            )
        return self.journal.state_after(entry.number)

    def entry_digest(self, kind: EntryKind, round_num: int) -> str | None:
        """Return the SHA-256 of a round's newest entry of a kind, or None if there is none.

        Every entry holds the digest of the one before, so this one stands for all before it.
        """
        entry = self.journal.find(kind, round_num)
        if entry is None:
            return None
        return self.journal.digest(entry.number)

    def _sealed_before(self, state: FederationState) -> SealedRound | None:
        try:
            return self.sealed_round(state.round_num - 1)
        except RoundStateError:
            return None

    def _sealed_entry(self, round_num: int) -> Entry:
        entry = self.journal.find(EntryKind.ROUND_SEALED, round_num)
        if entry is None:
            raise RoundStateError(f"round {round_num} of {self.state().federation} is not sealed")
        return entry
