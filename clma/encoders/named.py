"""An encoder by the name that a command line gives it.

Examples
--------
>>> named_encoder("flatten", sample_shape=(2, 30)).dim
60
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clma.adapters.factory import load_factory
from clma.encoders.contract import Encoder
from clma.encoders.flatten import Flatten
from clma.encoders.sensor_stats import read_ranges
from clma.errors import InvalidConfigError

__all__ = ["named_encoder"]

_RANGES = "sensor-stats:"


def named_encoder(name: str, *, sample_shape: Sequence[int]) -> Encoder:
    """Return an encoder.

    Parameters
    ----------
    name : str
        ``flatten``; ``sensor-stats:RANGES.toml``, as `clma.encoders.sensor_stats.read_ranges` takes
        it; or ``package.module:function``, which takes nothing and returns an encoder. The last is
        imported, so it must come from whoever runs the command.
    sample_shape : sequence of int
        Of one sample, for ``flatten``.

    Raises
    ------
    InvalidConfigError
        If there is none of that name, or its file is refused.
    """
    if name == "flatten":
        return Flatten(tuple(sample_shape))
    if name.startswith(_RANGES):
        return read_ranges(Path(name.removeprefix(_RANGES)))
    if ":" not in name:
        raise InvalidConfigError(
            f"encoder {name!r}: wanted flatten, {_RANGES}RANGES.toml or package.module:function"
        )
    made = load_factory(name)()
    if not (callable(made) and isinstance(getattr(made, "fingerprint", None), str)):
        raise InvalidConfigError(
            f"encoder {name!r} made a {type(made).__name__}, wanted an encoder: callable, with a "
            "fingerprint"
        )
    encoder: Encoder = made
    return encoder
