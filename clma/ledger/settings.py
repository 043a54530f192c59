"""The configuration in force: recorded by the ledger, changed by an entry, kept for every round.

``federation.toml`` is the operator's copy. What counts is the file under ``configs/`` that the
newest entry names, so that a round can be decided again with the settings of its night.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib

from clma.config import FederationConfig, parse_config, render_config
from clma.errors import InvalidConfigError, MissingObjectError, RoundStateError
from clma.ledger.chain import EntryKind
from clma.ledger.history import FederationHistory
from clma.ledger.journal import Payload
from clma.ledger.keys import CONFIG_KEY, config_key
from clma.ledger.state import changes
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState, Phase

__all__ = ["FederationSettings", "write_config"]


def write_config(store: Store, config: FederationConfig) -> ArtifactRef:
    """Store a configuration under its digest; nothing is in force by that."""
    text = render_config(config).encode()
    return store.put_once(config_key(hashlib.sha256(text).hexdigest()), text)


class FederationSettings(FederationHistory):
    """Reads and changes a federation's configuration.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._configs: dict[str, FederationConfig] = {}

    @property
    def config(self) -> FederationConfig:
        """The configuration in force."""
        return self.config_of(self.state())

    def config_at_seal(self, round_num: int) -> FederationConfig:
        """Return the configuration that a round is decided with.

        Raises
        ------
        RoundStateError
            If the round was never sealed.
        """
        return self.config_of(self.state_at_seal(round_num))

    def config_of(self, state: FederationState) -> FederationConfig:
        """Return the configuration that was in force in a state.

        Raises
        ------
        DamagedStoreError
            If its file is missing or was changed.
        """
        ref = state.config
        if ref is None:
            raise RoundStateError("the ledger names no configuration")
        if ref.sha256 not in self._configs:
            self._configs[ref.sha256] = parse_config(self.read_recorded(ref).decode())
        return self._configs[ref.sha256]

    def configure(
        self, config: FederationConfig, *, now: dt.datetime | None = None
    ) -> FederationState:
        """Put another configuration in force; it decides the open round and those after it.

        Parameters
        ----------
        config : FederationConfig
        now : datetime, optional
            With a zone; only written down.

        Raises
        ------
        InvalidConfigError
            If it is of another federation.
        RoundStateError
            If a round is sealed: its inputs were judged by the configuration of its night.
        """
        if config.federation != self.state().federation:
            raise InvalidConfigError(
                f"federation is {config.federation!r}, the store holds {self.state().federation!r}"
            )
        ref = write_config(self.store, config)

        def build(state: FederationState) -> Payload | None:
            if state.config == ref:
                return None
            if state.phase is Phase.SEALED:
                raise RoundStateError(
                    f"round {state.round_num} is sealed: run the night, then change settings"
                )
            return changes(state, dataclasses.replace(state, config=ref))

        state = self.journal.step(EntryKind.CONFIGURATION_CHANGED, build, now)
        self.write_operators_copy()
        return state

    def operators_copy(self) -> str | None:
        """Return the text of ``federation.toml``, or None where it is missing."""
        try:
            return self.store.get(CONFIG_KEY).decode("utf-8", "replace")
        except MissingObjectError:
            return None

    def write_operators_copy(self) -> None:
        """Make ``federation.toml`` show the configuration in force."""
        self.store.replace(CONFIG_KEY, render_config(self.config).encode())

    def stray_settings(self) -> str | None:
        """Return one line if ``federation.toml`` does not show what is in force, else None."""
        text = self.operators_copy()
        if text is None:
            return f"{CONFIG_KEY} is missing; 'clma configure' writes it again"
        try:
            same = parse_config(text) == self.config
        except InvalidConfigError as error:
            return f"{CONFIG_KEY} was edited and cannot be read ({error}); it is not in force"
        if same:
            return None
        return f"{CONFIG_KEY} was edited and is not in force: 'clma configure --apply' applies it"
