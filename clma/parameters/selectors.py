"""Choose the tensors that tell where an update points.

A selector is a function from tensor specs to the names it keeps. It decides what cohorting looks
at; aggregation always covers the whole model.

Examples
--------
>>> specs = [TensorSpec("bn.running_mean", "F32", (4,)), TensorSpec("head.weight", "F32", (2, 4))]
>>> select_default(specs)
('head.weight',)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from clma.config import CohortingConfig
from clma.errors import InvalidConfigError
from clma.parameters.tensor_file import FLOAT_DTYPES
from clma.records import TensorSpec

__all__ = [
    "BUFFER_NAMES",
    "Selector",
    "layer_of",
    "make_selector",
    "select_all",
    "select_by_name",
    "select_default",
    "select_last_layers",
]

Selector = Callable[[Sequence[TensorSpec]], tuple[str, ...]]

BUFFER_NAMES = frozenset(
    {
        "running_mean",
        "running_var",
        "num_batches_tracked",
        "moving_mean",
        "moving_variance",
    }
)
"""Last parts of names under which torch and Keras keep normalisation statistics."""


def select_all(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Keep every floating-point tensor; integers are counters, they have no direction."""
    return tuple(sorted(s.name for s in specs if s.dtype in FLOAT_DTYPES))


def select_default(specs: Sequence[TensorSpec], *, exclude: Sequence[str] = ()) -> tuple[str, ...]:
    """Keep what was learned: floating-point tensors without normalisation statistics.

    Parameters
    ----------
    specs : sequence of TensorSpec
    exclude : sequence of str
        Further glob patterns to leave out.
    """
    return tuple(
        name
        for name in select_all(specs)
        if _last_part(name) not in BUFFER_NAMES and not _matches(name, exclude)
    )


def select_by_name(
    specs: Sequence[TensorSpec], *, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tuple[str, ...]:
    """Keep floating-point tensors by glob pattern; an empty `include` means all.

    The names of a torch module's trainable parameters (`clma.adapters.torch.trainable_names`) can
    be given as `include`: they hold no pattern characters.
    """
    return tuple(
        name
        for name in select_all(specs)
        if (not include or _matches(name, include)) and not _matches(name, exclude)
    )


def select_last_layers(
    specs: Sequence[TensorSpec], *, n_layers: int = 1, order: Sequence[str] = ()
) -> tuple[str, ...]:
    """Keep the learned tensors of the last layers.

    Parameters
    ----------
    specs : sequence of TensorSpec
    n_layers : int >= 1
    order : sequence of str
        Layer names, first to last (a layer is the tensor's name without its last part). A
        safetensors file does not keep the order of a model; without `order` the names are sorted
        with numbers by value, right for ``0.weight ... 10.weight``, wrong for ``layer1, head``.

    Raises
    ------
    InvalidConfigError
        If `order` misses a layer of the model.
    """
    names = select_default(specs)
    layers = sorted({layer_of(name) for name in names}, key=_natural)
    if order:
        missing = sorted(set(layers) - set(order))
        if missing:
            raise InvalidConfigError(f"cohorting.layer_order lacks the layers {missing}")
        layers = [layer for layer in order if layer in set(layers)]
    kept = set(layers[-n_layers:])
    return tuple(name for name in names if layer_of(name) in kept)


def make_selector(config: CohortingConfig) -> Selector:
    """Return the configured selector; it raises InvalidConfigError if it would keep nothing."""

    def select(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
        if config.selector == "all":
            names = select_all(specs)
        elif config.selector == "last_layers":
            names = select_last_layers(specs, n_layers=config.last_layers, order=config.layer_order)
        elif config.selector == "name_filter":
            names = select_by_name(specs, include=config.include, exclude=config.exclude)
        else:
            names = select_default(specs, exclude=config.exclude)
        if not names:
            raise InvalidConfigError(
                f"cohorting.selector = {config.selector!r} keeps none of {len(specs)} tensors"
            )
        return names

    return select


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _last_part(name: str) -> str:
    return re.split(r"[./]", name)[-1]


def layer_of(name: str) -> str:
    """Return a tensor's name without its last part."""
    return name.rsplit(".", 1)[0] if "." in name else name.rsplit("/", 1)[0]


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
