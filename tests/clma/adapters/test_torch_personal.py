from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from clma.adapters.torch import parameters_of  # noqa: E402
from clma.adapters.torch_personal import (  # noqa: E402
    keep_personal,
    only_training,
    restore_personal,
)
from clma.client.model_file import read_parameters  # noqa: E402
from clma.errors import InvalidConfigError, ShapeMismatchError  # noqa: E402

HEAD = ["head.*"]


def _module(n_classes: int = 2) -> torch.nn.Module:
    layers = {"body": torch.nn.Linear(3, 4), "head": torch.nn.Linear(4, n_classes)}
    return torch.nn.ModuleDict(layers)


def test_a_head_comes_back_on_the_plants_disk_and_nothing_else(tmp_path: Path) -> None:
    path, before, after = tmp_path / "head.safetensors", _module(), _module()
    body = after["body"].weight.detach().clone()

    keep_personal(before, path, personal=HEAD)

    assert restore_personal(after, path, personal=HEAD)
    assert torch.equal(after["head"].weight, before["head"].weight)
    assert torch.equal(after["body"].weight, body)
    assert sorted(read_parameters(path)) == ["head.bias", "head.weight"]


def test_in_the_first_night_the_head_is_the_modules_own(tmp_path: Path) -> None:
    module = _module()
    before = parameters_of(module)

    assert not restore_personal(module, tmp_path / "head.safetensors", personal=HEAD)
    assert all((parameters_of(module)[n] == before[n]).all() for n in before)


def test_a_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    keep_personal(_module(n_classes=3), tmp_path / "head", personal=HEAD)

    with pytest.raises(ShapeMismatchError, match="head"):
        restore_personal(_module(), tmp_path / "head", personal=HEAD)


def test_one_part_trains_while_the_other_rests() -> None:
    module = _module()
    module["head"].bias.requires_grad_(False)

    with only_training(module, HEAD):
        inside = [n for n, p in module.named_parameters() if p.requires_grad]
    after = [n for n, p in module.named_parameters() if p.requires_grad]

    assert inside == ["head.weight"]
    assert after == ["body.weight", "body.bias", "head.weight"]


def test_nothing_to_train_is_refused() -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"fit none of body\.weight"),
        only_training(_module(), ["tail.*"]),
    ):
        pass
