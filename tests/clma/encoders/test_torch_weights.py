from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra torch")

from clma.adapters.torch import parameters_of  # noqa: E402
from clma.encoders.torch_weights import load_weights  # noqa: E402
from clma.errors import InvalidConfigError  # noqa: E402
from clma.parameters.tensor_file import serialize_tensors  # noqa: E402


def module() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def write(path: Path, state: dict[str, Any]) -> Path:
    """Write a state dict in the format of the name's suffix."""
    if path.suffix == ".safetensors":
        path.write_bytes(serialize_tensors({n: t.numpy() for n, t in state.items()}))
    else:
        torch.save(state, path)
    return path


FORMATS = pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])


@FORMATS
def test_every_weight_comes_from_the_file(tmp_path: Path, name: str) -> None:
    source, target = module(), module()

    load_weights(target, write(tmp_path / name, source.state_dict()))

    for key, array in parameters_of(source).items():
        np.testing.assert_array_equal(parameters_of(target)[key], array)


@FORMATS
def test_file_that_lacks_a_layer_is_refused_whole(tmp_path: Path, name: str) -> None:
    state, target = module().state_dict(), module()
    before = parameters_of(target)
    del state["1.running_var"]

    with pytest.raises(InvalidConfigError, match=rf"{name}: parameters lack \['1.running_var'\]"):
        load_weights(target, write(tmp_path / name, state))

    for key, array in parameters_of(target).items():
        np.testing.assert_array_equal(array, before[key])


@FORMATS
def test_layer_that_the_module_has_not_is_refused(tmp_path: Path, name: str) -> None:
    state = module().state_dict() | {"head.weight": torch.ones(2)}
    with pytest.raises(InvalidConfigError, match=r"have unknown \['head.weight'\]"):
        load_weights(module(), write(tmp_path / name, state))


@FORMATS
def test_layer_of_another_shape_is_refused(tmp_path: Path, name: str) -> None:
    state = module().state_dict() | {"0.weight": torch.ones(3, 3)}
    with pytest.raises(InvalidConfigError, match=r"'0.weight' has shape \[3, 3\]"):
        load_weights(module(), write(tmp_path / name, state))


def test_bfloat16_weights_come_exactly(tmp_path: Path) -> None:
    source = torch.nn.Linear(3, 2).to(torch.bfloat16)
    target = torch.nn.Linear(3, 2)
    load_weights(target, write(tmp_path / "w.pt", source.state_dict()))
    assert torch.equal(target.weight, source.weight.float())


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("save", [torch.save, lambda o, p: p.write_bytes(pickle.dumps(o, 2))])
def test_checkpoint_that_would_run_code_is_refused_and_does_not(tmp_path: Path, save: Any) -> None:
    save({"0.weight": Harmful(tmp_path / "harm")}, tmp_path / "w.pth")

    with pytest.raises(InvalidConfigError, match=r"w\.pth: no state dict"):
        load_weights(module(), tmp_path / "w.pth")

    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"model": {"0.weight": torch.ones(1)}, "epoch": 3}, r"\['model', 'epoch'\] are no tens"),
        (torch.ones(2), "holds a Tensor, wanted named tensors"),
    ],
)
def test_checkpoint_of_other_things_is_refused(tmp_path: Path, content: Any, why: str) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(InvalidConfigError, match=why):
        load_weights(module(), tmp_path / "w.pth")


@FORMATS
@pytest.mark.parametrize("content", [b"", b"weights", bytes(99)])
def test_file_of_anything_else_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidConfigError, match="weights") as refused:
        load_weights(module(), tmp_path / name)
    assert "\n" not in str(refused.value)


@FORMATS
def test_file_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigError, match="No such file"):
        load_weights(module(), tmp_path / name)
