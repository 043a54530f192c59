"""A part of a torch module that every plant keeps for itself, as a rule the head.

The body is trained by the whole cohort, the head on the plant's own data only and on its own disk
(FedPer). `only_training` trains one part while the other rests, as FedRep does in turns. What is
shared is said by the federation's base model: it holds the body's tensors and no others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from clma.adapters.torch import load_parameters, parameters_of, personal_names
from clma.client.model_file import read_parameters, write_parameters
from clma.errors import InvalidConfigError, MissingExtraError

try:
    import torch
except ImportError as error:  # pragma: no cover - the base install has no torch
    raise MissingExtraError(
        "clma.adapters.torch_personal needs torch: pip install 'clma[torch]'"
    ) from error

__all__ = ["keep_personal", "only_training", "restore_personal"]


def keep_personal(module: torch.nn.Module, path: Path, *, personal: Sequence[str]) -> None:
    """Write the personal part of a module to the plant's disk, whole or not at all.

    Parameters
    ----------
    module : torch.nn.Module
    path : Path
        Safetensors file; it never leaves the plant.
    personal : sequence of str
        Glob patterns of names, for instance ``head.*``.

    Raises
    ------
    InvalidConfigError
        If a pattern fits no name or all of them.
    StorageError
        If the disk refuses.
    """
    kept = personal_names(module, personal)
    state = parameters_of(module)
    write_parameters(path, {name: state[name] for name in kept})


def restore_personal(module: torch.nn.Module, path: Path, *, personal: Sequence[str]) -> bool:
    """Fill the personal part of a module from the plant's disk.

    Parameters
    ----------
    module : torch.nn.Module
    path : Path
        As `keep_personal` wrote it.
    personal : sequence of str
        The same patterns.

    Returns
    -------
    bool
        False, and the module is as it was, if there is no such file: the plant's first night.

    Raises
    ------
    ShapeMismatchError
        If names or shapes are not those of the module's personal part.
    InvalidConfigError
        If a pattern fits no name or all of them.
    """
    kept = personal_names(module, personal)
    if not path.exists():
        return False
    shared = tuple(name for name in module.state_dict() if name not in kept)
    load_parameters(module, read_parameters(path), personal=[_literally(n) for n in shared])
    return True


@contextlib.contextmanager
def only_training(module: torch.nn.Module, patterns: Sequence[str]) -> Iterator[None]:
    """Freeze all parameters but some; afterwards each is as frozen as it was before.

    Parameters
    ----------
    module : torch.nn.Module
    patterns : sequence of str
        Glob patterns of the names to train.

    Raises
    ------
    InvalidConfigError
        If no parameter fits.

    References
    ----------
    .. [1] Arivazhagan et al. (2019), "Federated Learning with Personalization Layers", section 3.
    .. [2] Collins et al. (2021), "Exploiting Shared Representations for Personalized Federated
       Learning", ICML, algorithm 1.
    """
    named = dict(module.named_parameters())
    chosen = {n for n in named if any(fnmatchcase(n, pattern) for pattern in patterns)}
    if not chosen:
        raise InvalidConfigError(f"patterns {list(patterns)} fit none of {', '.join(named)}")
    before = {name: parameter.requires_grad for name, parameter in named.items()}
    try:
        for name, parameter in named.items():
            parameter.requires_grad_(before[name] and name in chosen)
        yield
    finally:
        for name, parameter in named.items():
            parameter.requires_grad_(before[name])


def _literally(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)
