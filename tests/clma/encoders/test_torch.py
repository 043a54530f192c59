from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra torch")

from clma.encoders.contract import encode  # noqa: E402
from clma.encoders.reference import save_reference  # noqa: E402
from clma.encoders.torch import TorchEncoder  # noqa: E402
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError  # noqa: E402

IMAGES = np.random.default_rng(0).uniform(size=(6, 3, 5, 5)).astype(np.float32)
SHAPE = (3, 5, 5)


def network() -> Any:
    """Return a small network whose batch norm has seen data; the same one every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.5)
        )
        module(torch.rand(8, *SHAPE))
    return module


def encoder(module: Any = None, **settings: Any) -> TorchEncoder:
    return TorchEncoder(module or network(), **{"sample_shape": SHAPE} | settings)


def test_embedding_is_that_of_the_module_in_evaluation_averaged_over_places() -> None:
    with torch.no_grad():
        wanted = network().eval()(torch.from_numpy(IMAGES)).mean(dim=(2, 3))
    assert encode(encoder(), IMAGES) == pytest.approx(wanted.numpy(), abs=1e-5)


def test_embedding_does_not_depend_on_its_batch() -> None:
    one_by_one = encode(encoder(), IMAGES, n_at_once=1)
    assert encode(encoder(), IMAGES) == pytest.approx(one_by_one, abs=1e-5)


def test_same_samples_give_the_same_bytes() -> None:
    assert encode(encoder(), IMAGES).tobytes() == encode(encoder(), IMAGES).tobytes()


def test_rows_of_numbers_are_taken_as_they_are() -> None:
    flat = encoder(torch.nn.Flatten(), layout="as-is")
    assert (encode(flat, IMAGES) == IMAGES.reshape(6, -1)).all()


def test_samples_are_prepared() -> None:
    flat = encoder(torch.nn.Flatten(), mean=(0, 1, 2), std=(2.0,))
    wanted = (IMAGES - np.arange(3, dtype=np.float32)[:, None, None]) / 2
    assert encode(flat, IMAGES) == pytest.approx(wanted.reshape(6, -1), abs=1e-6)


def test_module_keeps_its_mode_and_its_gradients() -> None:
    module = network()
    module[1].eval()

    encode(encoder(module), IMAGES)

    assert [m.training for m in module.modules()] == [True, True, False, True]
    assert all(p.requires_grad for p in module.parameters())


def test_training_the_module_further_does_not_move_the_encoder() -> None:
    module = network()
    frozen = encoder(module)
    before = encode(frozen, IMAGES)

    module(torch.rand(8, *SHAPE))
    with torch.no_grad():
        module[0].weight.add_(1.0)

    assert (encode(frozen, IMAGES) == before).all()


def test_reference_is_checked_at_once(tmp_path: Path) -> None:
    reference = tmp_path / "reference.safetensors"
    save_reference(encoder(), IMAGES, reference)

    encoder(reference=reference)
    with pytest.raises(InvalidConfigError, match="departs by"):
        encoder(std=(0.5,), reference=reference)


def test_equal_modules_have_one_fingerprint() -> None:
    assert encoder().fingerprint == encoder(network().eval()).fingerprint


@pytest.mark.parametrize("name", list(network().state_dict()))
def test_every_weight_and_statistic_is_part_of_the_fingerprint(name: str) -> None:
    module = network()
    with torch.no_grad():
        module.state_dict()[name].view(-1)[-1] += 1
    assert encoder(module).fingerprint != encoder().fingerprint


def test_buffers_that_are_not_saved_count_too() -> None:
    modules = [torch.nn.Flatten(), torch.nn.Flatten()]
    for value, module in enumerate(modules):
        module.register_buffer("scale", torch.tensor(float(value)), persistent=False)
    assert len({encoder(m, layout="as-is").fingerprint for m in modules}) == 2


def test_settings_names_and_kinds_of_parts_are_part_of_the_fingerprint() -> None:
    relu, gelu = (torch.nn.Sequential(torch.nn.Flatten(), a()) for a in _ACTIVATIONS)
    others = [
        encoder(relu),
        encoder(gelu),
        encoder(relu, mean=(0.1,)),
        encoder(relu, std=(0.1,)),
        encoder(relu, value_range=(-9.0, 9.0)),
        encoder(relu, layout="NHWC"),
        encoder(relu, sample_shape=(3, 5, 6)),
        encoder(relu, name="other"),
    ]
    assert len({e.fingerprint for e in others}) == len(others)


_ACTIVATIONS = (torch.nn.ReLU, torch.nn.GELU)


def test_norm_by_the_batch_is_refused_by_its_name() -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm2d(3, track_running_stats=False))
    with pytest.raises(InvalidConfigError, match=r"^0 \(BatchNorm2d\) normalises by its batch"):
        encoder(module)


def test_part_that_stays_in_training_mode_is_refused() -> None:
    class Stubborn(torch.nn.Dropout):
        def train(self, mode: bool = True) -> Any:
            return super().train(True)

    with pytest.raises(InvalidConfigError, match=r"^1 \(Stubborn\) stays in training mode"):
        encoder(torch.nn.Sequential(torch.nn.Flatten(), Stubborn()))


def test_dropout_hidden_in_the_code_is_refused() -> None:
    class Hidden(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.dropout(x.flatten(1), training=True)

    with pytest.raises(InvalidConfigError, match="or on chance"):
        encoder(Hidden())


def test_module_that_gives_several_tensors_is_refused() -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x, x

    with pytest.raises(InvalidConfigError, match="Pair gives a tuple, wanted one tensor"):
        encoder(Pair())


@pytest.mark.parametrize("module", [torch.nn.Linear(4, 2), torch.nn.Linear(5, 2).double()])
def test_module_that_takes_other_samples_is_refused_in_one_line(module: Any) -> None:
    with pytest.raises(InvalidConfigError, match="Linear failed: ") as refused:
        encoder(module)
    assert "\n" not in str(refused.value)


def test_module_that_cannot_be_copied_is_refused() -> None:
    module = torch.nn.Linear(3, 2)
    module.kept = module.weight * 2

    with pytest.raises(InvalidConfigError, match="Linear cannot be copied"):
        encoder(module)


def test_samples_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeMismatchError, match=r"wanted \(n, 3, 5, 5\)"):
        encoder()(IMAGES[:, :2])


def test_sample_that_is_not_finite_or_out_of_range_is_refused_by_its_row() -> None:
    images = IMAGES.copy()
    images[3] *= 255
    with pytest.raises(InvalidUpdateError, match=r"sample 3 has values of .+ wanted 0 to 1"):
        encoder(value_range=(0, 1))(images)
    images[2, 0, 0, 0] = np.nan
    with pytest.raises(InvalidUpdateError, match="sample 2"):
        encoder()(images)
