from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="makes the networks of these tests")
pytest.importorskip("onnxruntime", reason="extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from clma.encoders.contract import encode  # noqa: E402
from clma.encoders.onnx import OnnxEncoder  # noqa: E402
from clma.encoders.reference import save_reference  # noqa: E402
from clma.errors import (  # noqa: E402
    InvalidConfigError,
    InvalidUpdateError,
    MissingExtraError,
    ShapeMismatchError,
)

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4, 3, 2, 2)).astype(np.float32)
IMAGES = RNG.uniform(size=(6, 3, 5, 5)).astype(np.float32)
ANY = ("n", 3, "h", "w")


def write(
    path: Path,
    nodes: list[Any],
    *,
    shape: tuple[Any, ...] = ANY,
    outputs: dict[str, int] | None = None,
    weights: Any = WEIGHTS,
    dtype: int = TensorProto.FLOAT,
) -> Path:
    """Write a network of the input `x` and the weights `w`; outputs by their number of axes."""
    tensor = weights if isinstance(weights, TensorProto) else numpy_helper.from_array(weights, "w")
    made = [
        helper.make_tensor_value_info(name, dtype, ["n", *"abcdef"[: n_axes - 1]])
        for name, n_axes in (outputs or {"y": 4}).items()
    ]
    taken = [helper.make_tensor_value_info("x", dtype, shape)]
    graph = helper.make_graph(nodes, "network", taken, made, [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def convolve() -> list[Any]:
    return [helper.make_node("Conv", ["x", "w"], ["y"])]


def pooled(images: np.ndarray) -> np.ndarray:
    """Return the means over all places of the convolution, the slow way."""
    places = [
        np.einsum("nchw,kchw->nk", images[:, :, i : i + 2, j : j + 2], WEIGHTS)
        for i in range(4)
        for j in range(4)
    ]
    return np.mean(places, axis=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "network.onnx", convolve())


def encoder(path: Path, **settings: Any) -> OnnxEncoder:
    return OnnxEncoder(path, **{"sample_shape": (3, 5, 5)} | settings)


def test_feature_maps_are_averaged_over_places(path: Path) -> None:
    assert encode(encoder(path), IMAGES) == pytest.approx(pooled(IMAGES), abs=1e-5)


def test_samples_are_normalised_by_channel(path: Path) -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    normalised = (IMAGES - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))

    embeddings = encode(encoder(path, mean=mean, std=std), IMAGES)

    assert embeddings == pytest.approx(pooled(normalised), abs=1e-5)


def test_embedding_does_not_depend_on_its_batch(path: Path) -> None:
    one_by_one = encode(encoder(path), IMAGES, n_at_once=1)
    assert encode(encoder(path), IMAGES) == pytest.approx(one_by_one, abs=1e-6)


def test_same_samples_give_the_same_bytes(path: Path) -> None:
    assert encode(encoder(path), IMAGES).tobytes() == encode(encoder(path), IMAGES).tobytes()


def test_network_that_wants_channels_last_gives_the_same(path: Path, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["first", "w"], ["maps"]),
        helper.make_node("Transpose", ["maps"], ["y"], perm=[0, 2, 3, 1]),
    ]
    last = write(tmp_path / "last.onnx", nodes, shape=("n", 5, 5, 3))

    embeddings = encode(OnnxEncoder(last, layout="NHWC"), IMAGES)

    assert embeddings == pytest.approx(encode(encoder(path), IMAGES), abs=1e-6)


def test_windows_go_in_as_they_are(tmp_path: Path) -> None:
    weights = RNG.normal(size=(4, 2)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = write(tmp_path / "a", nodes, shape=("n", 4), outputs={"y": 2}, weights=weights)

    windows = RNG.normal(size=(5, 4))

    assert encode(OnnxEncoder(path, layout="as-is"), windows) == pytest.approx(
        windows @ weights, abs=1e-5
    )


def test_network_of_a_fixed_size_needs_no_sample_shape(tmp_path: Path) -> None:
    path = write(tmp_path / "a", convolve(), shape=("n", 3, 5, 5))
    assert OnnxEncoder(path).sample_shape == (3, 5, 5)


def test_fingerprint_does_not_know_the_place(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.bin"
    copy.write_bytes(path.read_bytes())
    assert encoder(copy).fingerprint == encoder(path).fingerprint


def test_preprocessing_is_part_of_the_fingerprint(path: Path) -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"mean": (0.1,)},
        {"mean": (0.2,)},
        {"mean": (0.1, 0.1, 0.1)},
        {"std": (0.5,)},
        {"value_range": (0.0, 1.0)},
        {"sample_shape": (3, 6, 5)},
    ]
    assert len({encoder(path, **s).fingerprint for s in settings}) == len(settings)


def test_layout_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    path = write(tmp_path / "a", nodes, shape=("n", 3, 3, 3))
    prints = {OnnxEncoder(path, layout=layout).fingerprint for layout in ("NCHW", "NHWC")}
    assert len(prints) == 2


def test_every_weight_is_part_of_the_fingerprint(path: Path, tmp_path: Path) -> None:
    weights = WEIGHTS.copy()
    weights[3, 2, 1, 1] = np.nextafter(weights[3, 2, 1, 1], np.float32(9))
    other = write(tmp_path / "other.onnx", convolve(), weights=weights)
    assert encoder(other).fingerprint != encoder(path).fingerprint


@pytest.fixture
def two_outputs(tmp_path: Path) -> Path:
    nodes = [
        *convolve(),
        helper.make_node("GlobalMaxPool", ["y"], ["largest"]),
        helper.make_node("Flatten", ["largest"], ["flat"]),
    ]
    return write(tmp_path / "two.onnx", nodes, outputs={"y": 4, "flat": 2})


def test_output_is_taken_by_its_name(two_outputs: Path) -> None:
    means, largest = (encoder(two_outputs, output=name) for name in ("y", "flat"))
    assert (encode(means, IMAGES) < encode(largest, IMAGES)).all()
    assert means.fingerprint != largest.fingerprint


def test_one_output_needs_no_name(path: Path) -> None:
    assert encoder(path).fingerprint == encoder(path, output="y").fingerprint


@pytest.mark.parametrize(("name", "why"), [(None, "several outputs"), ("z", "no output 'z'")])
def test_other_output_is_refused_by_the_names_there_are(
    two_outputs: Path, name: str | None, why: str
) -> None:
    with pytest.raises(InvalidConfigError, match=rf"{why}, wanted one of \['y', 'flat'\]"):
        encoder(two_outputs, output=name)


def test_reference_is_checked_at_once(path: Path, tmp_path: Path) -> None:
    reference = tmp_path / "reference.safetensors"
    save_reference(encoder(path), IMAGES, reference)

    encoder(path, reference=reference)
    with pytest.raises(InvalidConfigError, match="departs by"):
        encoder(path, mean=(0.5,), reference=reference)


@pytest.mark.parametrize("location", ["weights.bin", "../weights.bin", "/absolute/weights.bin"])
def test_weights_in_another_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for folder in (tmp_path, inside):
        (folder / "weights.bin").write_bytes(WEIGHTS.tobytes())
    monkeypatch.chdir(inside)
    tensor = numpy_helper.from_array(WEIGHTS, "w")
    location = location.replace("/absolute", str(tmp_path))
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    path = write(inside / "a.onnx", convolve(), weights=tensor)

    with pytest.raises(InvalidConfigError, match=r"a\.onnx: keeps weights in other files"):
        encoder(path)


def test_fixed_batch_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.onnx", convolve(), shape=(1, 3, 5, 5))
    with pytest.raises(InvalidConfigError, match="wanted a first axis of any length"):
        encoder(path)


def test_open_size_wants_a_sample_shape(path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"\[3, 'h', 'w'\], sample_shape has to say"):
        encoder(path, sample_shape=None)


@pytest.mark.parametrize("shape", [(4, 5, 5), (3, 5), (3, 5, 5, 1)])
def test_other_sample_shape_is_refused(path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfigError, match="sample_shape is"):
        encoder(path, sample_shape=shape)


def test_images_too_small_for_the_network_are_refused(path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"network .+network\.onnx: .+") as refused:
        encoder(path, sample_shape=(3, 1, 1))
    assert "\n" not in str(refused.value)


def test_other_input_type_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Flatten", ["x"], ["y"])]
    path = write(tmp_path / "a", nodes, dtype=TensorProto.DOUBLE, outputs={"y": 2})
    with pytest.raises(InvalidConfigError, match=r"'x' tensor\(double\), wanted one"):
        encoder(path)


def test_network_that_mixes_samples_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    with pytest.raises(InvalidConfigError, match="depends on the samples beside it"):
        encoder(write(tmp_path / "a", nodes))


def test_network_of_tokens_is_refused_by_what_it_gives(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[3], keepdims=0)]
    with pytest.raises(InvalidConfigError, match=r"gives shape \(2, 3, 5\) for 2 samples"):
        encoder(write(tmp_path / "a", nodes, outputs={"y": 3}))


@pytest.mark.parametrize("content", [b"", b"no network", bytes(100)])
def test_file_that_is_no_network_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidConfigError, match=r"network .+a\.onnx: .+") as refused:
        encoder(path)
    assert "\n" not in str(refused.value)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="No such file"):
        encoder(tmp_path / "a.onnx")


def test_samples_of_another_shape_are_refused(path: Path) -> None:
    with pytest.raises(ShapeMismatchError, match=r"shape \(6, 5, 5, 3\), wanted \(n, 3, 5, 5\)"):
        encoder(path)(IMAGES.transpose(0, 2, 3, 1))


def test_sample_that_is_not_finite_is_refused_by_its_row(path: Path) -> None:
    images = IMAGES.copy()
    images[4, 0, 0, 0] = np.nan
    with pytest.raises(InvalidUpdateError, match="sample 4"):
        encoder(path)(images)


def test_missing_runtime_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "clma.encoders.onnx")
    with pytest.raises(MissingExtraError, match=r"pip install 'clma\[onnx\]'"):
        import clma.encoders.onnx  # noqa: F401
