"""PyTorch modules to named arrays and back.

All of a module's state travels, buffers included: a batch norm's running statistics are part of the
model that was trained. Which of the names are learnt, `trainable_names` says. What is named
`personal` stays at the plant: such a federation's base model holds the rest only.

Examples
--------
>>> module = torch.nn.Linear(2, 1, bias=False)
>>> load_parameters(module, {"weight": np.array([[1.0, 2.0]])})
>>> parameters_of(module)
{'weight': array([[1., 2.]], dtype=float32)}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import (
    InvalidConfigError,
    InvalidUpdateError,
    MissingExtraError,
    ShapeMismatchError,
)

try:
    import torch
except ImportError as error:  # pragma: no cover - the base install has no torch
    raise MissingExtraError("clma.adapters.torch needs torch: pip install 'clma[torch]'") from error

__all__ = ["load_parameters", "parameters_of", "personal_names", "trainable_names"]


def parameters_of(
    module: torch.nn.Module, *, personal: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Copy a module's state into arrays.

    Parameters
    ----------
    module : torch.nn.Module
        On any device. Not modified.
    personal : sequence of str
        Glob patterns of names to leave out, for instance ``head.*``.

    Returns
    -------
    dict of name to ndarray
        In the module's order and dtypes, except that bfloat16 becomes float32, which holds every
        bfloat16 exactly. Training the module further does not change them.

    Raises
    ------
    InvalidConfigError
        If the state holds something else than dense tensors of a dtype that NumPy has, or a pattern
        fits no name or all of them.
    """
    return {name: _array(name, tensor) for name, tensor in _state(module, personal).items()}


def load_parameters(
    module: torch.nn.Module,
    parameters: Mapping[str, NDArray[Any]],
    *,
    personal: Sequence[str] = (),
) -> None:
    """Fill a module with arrays, in place; the module keeps its dtypes, devices and shapes.

    Nothing is written unless everything fits, so a refused set leaves the module as it was.

    Parameters
    ----------
    module : torch.nn.Module
    parameters : mapping of name to ndarray
        Exactly the names and shapes of ``module.state_dict()``. Not modified. Floats are rounded to
        the nearest whole number where the module counts in integers.
    personal : sequence of str
        Glob patterns of names that are not wanted and stay as they are.

    Raises
    ------
    InvalidConfigError
        If a pattern fits no name or all of them.
    ShapeMismatchError
        If a name is missing or unknown, or a shape differs; nothing is broadcast.
    InvalidUpdateError
        If an array holds neither booleans nor real numbers.
    """
    state = _state(module, personal)
    missing, unknown = sorted(state.keys() - parameters), sorted(parameters.keys() - state)
    if missing or unknown:
        raise ShapeMismatchError(f"parameters lack {missing} and have unknown {unknown}")
    arrays = {name: np.asarray(parameters[name]) for name in state}
    for name, tensor in state.items():
        if arrays[name].shape != tuple(tensor.shape):
            raise ShapeMismatchError(
                f"parameter {name!r} has shape {list(arrays[name].shape)}, "
                f"the module wants {list(tensor.shape)}"
            )
        if arrays[name].dtype.kind not in "biuf":
            raise InvalidUpdateError(
                f"parameter {name!r} has dtype {arrays[name].dtype}, wanted real numbers"
            )
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(_tensor(arrays[name], tensor.dtype))


def trainable_names(module: torch.nn.Module) -> tuple[str, ...]:
    """Return the names that an optimizer may change, in order: no buffers, no frozen ones."""
    named = module.named_parameters(remove_duplicate=False)
    return tuple(name for name, parameter in named if parameter.requires_grad)


def personal_names(module: torch.nn.Module, personal: Sequence[str]) -> frozenset[str]:
    """Return the names of a module's state that patterns keep at the plant.

    Raises
    ------
    InvalidConfigError
        If a pattern fits no name, or all names are personal.
    """
    names = list(module.state_dict())
    for pattern in personal:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidConfigError(
                f"personal pattern {pattern!r} fits none of the names {', '.join(names)}"
            )
    found = frozenset(n for n in names if any(fnmatchcase(n, pattern) for pattern in personal))
    if len(found) == len(names):
        raise InvalidConfigError(f"personal patterns {list(personal)} leave nothing to share")
    return found


def _state(module: torch.nn.Module, personal: Sequence[str]) -> dict[str, torch.Tensor]:
    kept = personal_names(module, personal) if personal else frozenset[str]()
    state = {name: value for name, value in module.state_dict().items() if name not in kept}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise InvalidConfigError(
                f"module state {name!r} is a {type(value).__name__}, not a tensor"
            )
    return state


def _array(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.to(torch.float32)
    try:
        return np.array(tensor.numpy(), order="C")
    except (TypeError, RuntimeError) as error:
        raise InvalidConfigError(
            f"module state {name!r} of dtype {tensor.dtype}: {error}"
        ) from error


def _tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    counts = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    if counts and array.dtype.kind == "f":
        array = np.rint(array)
    # A native, writable copy: torch reads neither foreign byte order nor read-only memory.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
