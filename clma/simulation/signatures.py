"""Signatures of a simulated fleet: each client's own, of the data it trains on in a round.

Examples
--------
>>> from clma.config import preset_config
>>> from clma.simulation.recipes import load_fleet
>>> share = ["weights", "examples", "signature"]
>>> config = preset_config("example", "pacfl", privacy={"share": share})
>>> signature_of = fleet_signatures(load_fleet(None, "plant", seed=0), config)
>>> signature_of("plant-01", 1).arrays["directions"].shape
(510, 15)
"""

from __future__ import annotations

import functools

from clma.config import FederationConfig
from clma.encoders.contract import Encoder, encode
from clma.encoders.embedded import Embedded
from clma.encoders.flatten import Flatten
from clma.encoders.sensor_stats import SensorStats
from clma.ledger.federation import Federation
from clma.signatures.fecfl import sign_by_mean_feature
from clma.signatures.fmcl import sign_by_class_means
from clma.signatures.pacfl import sign_by_directions
from clma.signatures.signature import FeatureExtractor, Signature, SignatureSource
from clma.simulation.fleet import Fleet

__all__ = ["fleet_encoder", "fleet_signatures", "sent_signature_bytes"]

SENSOR_RANGE = 2.0
"""Deviations that a channel's range reaches to each side; units of scaled fleets."""


def fleet_signatures(fleet: Fleet, config: FederationConfig) -> SignatureSource | None:
    """Return where the configured method gets a fleet's signatures from; None if it needs none.

    Parameters
    ----------
    fleet : Fleet
    config : FederationConfig

    Returns
    -------
    callable or None
        Computes each signature once. A client computes its own on the windows that it trains on in
        that round, which it has before the round opens.
    """
    if config.signature_kind is None:
        return None
    if config.signature_kind == "fmcl":
        encoder = fleet_encoder(fleet)

        def sign(client_id: str, round_num: int) -> Signature:
            windows, labels = fleet.training_windows(client_id, round_num)
            return sign_by_class_means(windows, labels, encoder)
    elif config.signature_kind == "fecfl":
        extract, name = _extractor(fleet, config)

        def sign(client_id: str, round_num: int) -> Signature:
            windows, _ = fleet.training_windows(client_id, round_num)
            return sign_by_mean_feature(windows, extract, encoder=name)
    else:
        n_directions = config.cohorting.n_directions
        seen_by = fleet_encoder(fleet) if config.cohorting.features == "encoder" else None

        def sign(client_id: str, round_num: int) -> Signature:
            windows, labels = fleet.training_windows(client_id, round_num)
            if seen_by is None:
                return sign_by_directions(windows, labels, n_directions=n_directions)
            embedded, name = encode(seen_by, windows), seen_by.fingerprint
            return sign_by_directions(embedded, labels, n_directions=n_directions, encoder=name)

    return functools.cache(sign)


def _extractor(fleet: Fleet, config: FederationConfig) -> tuple[FeatureExtractor, str]:
    """Return what turns samples into the features of FECFL, and its name."""
    if config.cohorting.features == "encoder":
        encoder = fleet_encoder(fleet)
        return encoder, encoder.fingerprint
    # Loads torch, which the other signatures do without.
    from clma.simulation.features import initial_extractor

    return initial_extractor(fleet), fleet.model.factory


def fleet_encoder(fleet: Fleet) -> Encoder:
    """Return the frozen encoder of a fleet's data, which takes no weights from anywhere.

    What a frozen network has embedded stays as it is, under that network's fingerprint. Of others:
    statistics of sensor windows, in units of four deviations from two below to two above the mean,
    as all fleets here are scaled; other samples as they are.
    """
    samples, _ = fleet.training_windows(fleet.client_ids[0], 1)
    if fleet.encoder:
        return Embedded(samples.shape[1], fingerprint=fleet.encoder)
    if "window" not in fleet.model_arguments:
        return Flatten(samples.shape[1:])
    n_channels = samples.shape[1]
    return SensorStats((-SENSOR_RANGE,) * n_channels, (SENSOR_RANGE,) * n_channels)


def sent_signature_bytes(fleet: Fleet, federation: Federation, n_rounds: int) -> int:
    """Return the bytes of all signatures that placed a client before rounds 1 to `n_rounds`."""
    signature_of = fleet_signatures(fleet, federation.config)
    if signature_of is None:
        return 0
    return sum(
        signature_of(client_id, round_num).size_bytes
        for round_num in range(1, n_rounds + 1)
        for client_id, client in federation.state_at_seal(round_num).clients.items()
        if client.signature_round == round_num
    )
