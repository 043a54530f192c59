"""PyTorch modules as encoders; the caller builds the module, with whichever library it is of.

Notes
-----
The encoder keeps its own copy, in evaluation mode: training the module further, or switching its
mode, changes nothing here, and nothing here changes the module. Everything that the copy computes
by is hashed: parameters and buffers by their names, and the class of every part. What a module
keeps in plain attributes (a stride, a flag) is not seen: modules that differ only there want
different names.

Images come in the size that the network wants; resizing them is the caller's, and has to be the
same for all clients.

Examples
--------
>>> encoder = TorchEncoder(torch.nn.Flatten(), sample_shape=(3, 4), layout="as-is")
>>> encoder(np.ones((5, 3, 4))).shape
(5, 12)
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import fingerprint_of
from clma.encoders.network import NetworkEncoder
from clma.encoders.preprocessing import Layout, Preprocessing
from clma.encoders.reference import check_reference
from clma.errors import InvalidConfigError, MissingExtraError

try:
    import torch
except ImportError as error:  # pragma: no cover - the base install has no torch
    raise MissingExtraError("clma.encoders.torch needs torch: pip install 'clma[torch]'") from error

__all__ = ["TorchEncoder"]


class TorchEncoder(NetworkEncoder):
    """A torch module, frozen.

    Parameters
    ----------
    module : torch.nn.Module
        Maps float32 of shape (n, *sample_shape) to (n, dim), or to (n, dim, height, width), which
        is averaged over height and width. Copied to the CPU; not modified.
    sample_shape : tuple of int
        Of one sample, images as (channels, height, width).
    mean, std, layout, value_range, reference
        As in `clma.encoders.onnx.OnnxEncoder`.
    name : str
        Tells apart what weights and classes do not.

    Raises
    ------
    InvalidConfigError
        If the module cannot be copied, normalises by its batch, stays in training mode, fails on
        two samples, or does not give the reference's embeddings.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        sample_shape: Sequence[int],
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        layout: Layout = "NCHW",
        value_range: tuple[float, float] | None = None,
        name: str = "",
        reference: Path | None = None,
    ) -> None:
        preprocessing = Preprocessing.given(mean, std, layout, value_range)
        frozen = _frozen(module)
        _check_evaluates(frozen)
        shape = tuple(int(length) for length in sample_shape)
        settings = {**preprocessing.settings(), "name": name, "sample_shape": shape}
        super().__init__(
            _runner(frozen),
            preprocessing,
            shape,
            fingerprint=fingerprint_of("torch", 1, settings, _weights(frozen)),
        )
        if reference is not None:
            check_reference(self, reference)


def _frozen(module: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(module).cpu().eval().requires_grad_(requires_grad=False)
    except (RuntimeError, TypeError) as error:
        raise InvalidConfigError(
            f"{type(module).__name__} cannot be copied: {_first_line(error)}"
        ) from error


def _check_evaluates(module: torch.nn.Module) -> None:
    for name, part in module.named_modules():
        where = f"{name or 'the module'} ({type(part).__name__})"
        if part.training:
            raise InvalidConfigError(f"{where} stays in training mode")
        by_batch = isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
        if by_batch and part.running_mean is None:
            raise InvalidConfigError(f"{where} normalises by its batch, wanted running statistics")


def _weights(module: torch.nn.Module) -> Iterator[bytes | memoryview]:
    """Yield all that the module computes by, each part after what it is."""
    for name, part in module.named_modules():
        yield json.dumps([name, type(part).__qualname__]).encode()
    named = chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )
    for name, tensor in sorted(named):
        yield json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode()
        yield tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _runner(module: torch.nn.Module) -> Callable[[NDArray[np.float32]], NDArray[Any]]:
    def run(batch: NDArray[np.float32]) -> NDArray[Any]:
        try:
            with torch.inference_mode():
                embedded = module(torch.from_numpy(batch))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise InvalidConfigError(f"{_of(module)} failed: {_first_line(error)}") from error
        if not isinstance(embedded, torch.Tensor):
            raise InvalidConfigError(
                f"{_of(module)} gives a {type(embedded).__name__}, wanted one tensor"
            )
        return np.array(embedded.float().numpy())

    return run


def _of(module: torch.nn.Module) -> str:
    return type(module).__name__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
