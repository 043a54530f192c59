"""Networks from ONNX files: the way in for any exported model, without the framework it is of.

Notes
-----
Runs on one thread of the CPU, always with the same kernels for the same shapes. Nothing is fetched:
the file has to hold all weights; external data files are refused, since a fingerprint of the file
would not cover them. The fingerprint does not cover the runtime: its releases differ by rounding.

Images come in the size that the network wants; resizing them is the caller's, and has to be the
same for all clients.

Examples
--------
>>> encoder = OnnxEncoder(path, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
...                       sample_shape=(3, 64, 64))  # doctest: +SKIP
>>> encode(encoder, images).shape  # doctest: +SKIP
(500, 1280)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import fingerprint_of
from clma.encoders.network import NetworkEncoder
from clma.encoders.onnx_file import keeps_weights_elsewhere
from clma.encoders.preprocessing import Layout, Preprocessing
from clma.encoders.reference import check_reference
from clma.errors import InvalidConfigError, MissingExtraError

try:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as refusals
except ImportError as error:
    raise MissingExtraError(
        "clma.encoders.onnx needs onnxruntime: pip install 'clma[onnx]'"
    ) from error

__all__ = ["OnnxEncoder"]

INPUT_TYPE = "tensor(float)"
_REFUSALS = (
    refusals.Fail,
    refusals.InvalidArgument,
    refusals.InvalidGraph,
    refusals.InvalidProtobuf,
    refusals.NotImplemented,
    refusals.RuntimeException,
)
_FATAL_ONLY = 4


class OnnxEncoder(NetworkEncoder):
    """A network of an ONNX file.

    Parameters
    ----------
    path : Path
        Of one input of float32, whose first axis has no fixed length.
    mean, std : sequence of float, optional
        Subtracted from samples, then divided by; one for all or one a channel, in the samples'
        unit. Default: samples go in as they are.
    layout : {"NCHW", "NHWC", "as-is"}
        Where the network wants an image's channels; samples have them first. ``as-is``: no images.
    output : str, optional
        Name of the output to take, (n, dim) or (n, dim, height, width) in the network's layout,
        which is averaged over height and width. Needed where there are several.
    sample_shape : tuple of int, optional
        Of one sample, images as (channels, height, width). Needed where the network leaves a length
        open.
    value_range : (float, float), optional
        Smallest and largest value of a sample; others are refused.
    reference : Path, optional
        Of `clma.encoders.reference.save_reference`; checked at once.

    Raises
    ------
    InvalidConfigError
        If the file is not such a network, keeps weights in other files, fails on two samples, or
        does not give the reference's embeddings.
    """

    def __init__(
        self,
        path: Path,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        layout: Layout = "NCHW",
        output: str | None = None,
        sample_shape: Sequence[int] | None = None,
        value_range: tuple[float, float] | None = None,
        reference: Path | None = None,
    ) -> None:
        preprocessing = Preprocessing.given(mean, std, layout, value_range)
        model = _read(path)
        session = _session(model, path)
        shape = _sample_shape(session, layout, sample_shape, path)
        output = _output(session, output, path)
        settings = {**preprocessing.settings(), "output": output, "sample_shape": shape}
        try:
            super().__init__(
                _runner(session, output),
                preprocessing,
                shape,
                fingerprint=fingerprint_of("onnx", 1, settings, [model]),
            )
        except InvalidConfigError as error:
            raise InvalidConfigError(f"network {path}: {error}") from error
        if reference is not None:
            check_reference(self, reference)


def _read(path: Path) -> bytes:
    try:
        model = path.read_bytes()
        elsewhere = keeps_weights_elsewhere(model)
    except OSError as error:
        raise InvalidConfigError(f"network {path}: {error.strerror}") from error
    except InvalidConfigError as error:
        raise InvalidConfigError(f"network {path}: {error}") from error
    if elsewhere:
        raise InvalidConfigError(f"network {path}: keeps weights in other files, wanted all in one")
    return model


def _session(model: bytes, path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = _FATAL_ONLY
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except _REFUSALS as error:
        raise InvalidConfigError(f"network {path}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _sample_shape(
    session: Any, layout: Layout, given: Sequence[int] | None, path: Path
) -> tuple[int, ...]:
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != INPUT_TYPE:
        got = ", ".join(f"{i.name!r} {i.type}" for i in inputs)
        raise InvalidConfigError(f"network {path}: inputs {got}, wanted one {INPUT_TYPE}")
    batch, *lengths = inputs[0].shape or [1]
    if isinstance(batch, int):
        raise InvalidConfigError(
            f"network {path}: input has shape {inputs[0].shape}, wanted a first axis of any length"
        )
    if layout == "NHWC" and len(lengths) == 3:
        lengths = [lengths[2], *lengths[:2]]
    shape = tuple(lengths if given is None else given)
    if not all(isinstance(length, int) for length in shape):
        raise InvalidConfigError(
            f"network {path}: takes samples of shape {lengths}, sample_shape has to say which"
        )
    fixed = [length if isinstance(length, int) else None for length in lengths]
    if len(shape) != len(fixed) or any(
        f not in (None, s) for f, s in zip(fixed, shape, strict=True)
    ):
        raise InvalidConfigError(
            f"network {path}: takes samples of shape {lengths}, sample_shape is {list(shape)}"
        )
    return tuple(int(length) for length in shape)


def _output(session: Any, wanted: str | None, path: Path) -> str:
    names = [output.name for output in session.get_outputs()]
    if wanted is None and len(names) == 1:
        return str(names[0])
    if wanted not in names:
        what = "has several outputs" if wanted is None else f"has no output {wanted!r}"
        raise InvalidConfigError(f"network {path}: {what}, wanted one of {names}")
    return str(wanted)


def _runner(session: Any, output: str) -> Callable[[NDArray[np.float32]], NDArray[Any]]:
    name = session.get_inputs()[0].name

    def run(batch: NDArray[np.float32]) -> NDArray[Any]:
        try:
            return np.asarray(session.run([output], {name: batch})[0])
        except _REFUSALS as error:
            raise InvalidConfigError(_one_line(error)) from error

    return run
