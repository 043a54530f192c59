"""Fill a torch module from a file, completely or not at all.

A network of which one layer kept its random start gives embeddings that look well and compare with
nobody's. So every name has to be there, and no other.

Examples
--------
>>> import tempfile
>>> from clma.adapters.torch import parameters_of
>>> from clma.parameters.tensor_file import serialize_tensors
>>> module, path = torch.nn.Linear(2, 1), Path(tempfile.mkdtemp()) / "w.safetensors"
>>> _ = path.write_bytes(serialize_tensors(parameters_of(torch.nn.Linear(2, 1))))
>>> load_weights(module, path)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.adapters.torch import load_parameters
from clma.errors import ClmaError, InvalidConfigError, MissingExtraError
from clma.parameters.tensor_file import TensorFile

try:
    import torch
except ImportError as error:  # pragma: no cover - the base install has no torch
    raise MissingExtraError(
        "clma.encoders.torch_weights needs torch: pip install 'clma[torch]'"
    ) from error

__all__ = ["load_weights"]


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Fill a module with the weights of a file, in place.

    Parameters
    ----------
    module : torch.nn.Module
        Left as it was if the file is refused.
    path : Path
        Of the safetensors format, with that suffix, or a state dict as ``torch.save`` writes it.
        The operator's own, never a client's.

    Raises
    ------
    InvalidConfigError
        If the file cannot be read, is something else than named tensors, lacks a name of the
        module's, has one that the module has not, or another shape. A checkpoint that would run
        code is one of those.
    """
    read = _read_safetensors if path.suffix == ".safetensors" else _read_state_dict
    try:
        load_parameters(module, read(path))
    except OSError as error:
        raise InvalidConfigError(f"weights {path}: {error.strerror or error}") from error
    except ClmaError as error:
        raise InvalidConfigError(f"weights {path}: {error}") from error


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    with TensorFile(path) as file:
        return {spec.name: np.array(file.read(spec.name)) for spec in file.specs}


def _read_state_dict(path: Path) -> dict[str, NDArray[Any]]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    # Whatever a foreign file does to the reader; its own error class is pickle's.
    except Exception as error:
        why = (str(error).splitlines() or ["it ends too early"])[0]
        raise InvalidConfigError(f"no state dict: {why}") from error
    if not isinstance(state, dict):
        raise InvalidConfigError(f"holds a {type(state).__name__}, wanted named tensors")
    foreign = [str(name) for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if foreign:
        raise InvalidConfigError(f"{foreign[:9]} are no tensors, wanted named tensors only")
    return {str(name): _array(tensor) for name, tensor in state.items()}


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    dense = tensor.detach()
    return np.asarray((dense.float() if dense.dtype is torch.bfloat16 else dense).numpy())
