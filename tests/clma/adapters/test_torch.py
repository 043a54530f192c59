from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.torch import load_parameters, parameters_of, trainable_names  # noqa: E402
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError  # noqa: E402


def _module() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def test_state_comes_back_as_it_was_in_another_module() -> None:
    source, target = _module(), _module()

    load_parameters(target, parameters_of(source))

    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name])


def test_arrays_never_alias_the_module() -> None:
    module = _module()
    taken = parameters_of(module)
    before = {name: array.copy() for name, array in taken.items()}

    with torch.no_grad():
        module[0].weight.add_(1.0)
    taken["0.bias"][:] = 7.0

    np.testing.assert_array_equal(taken["0.weight"], before["0.weight"])
    assert not (module[0].bias == 7.0).any()


def test_loaded_arrays_are_not_aliased_either() -> None:
    module, given = _module(), parameters_of(_module())

    load_parameters(module, given)
    given["0.weight"][:] = 7.0

    assert not (module[0].weight == 7.0).any()


def test_scalars_keep_the_empty_shape() -> None:
    assert parameters_of(_module())["1.num_batches_tracked"].shape == ()


def test_bfloat16_is_widened_and_narrowed_back_exactly() -> None:
    module = torch.nn.Linear(3, 2).to(torch.bfloat16)
    before = module.weight.clone()

    taken = parameters_of(module)
    load_parameters(module, taken)

    assert taken["weight"].dtype == np.float32
    assert module.weight.dtype == torch.bfloat16
    assert torch.equal(module.weight, before)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_float_dtypes_are_kept(dtype: str) -> None:
    module = torch.nn.Linear(3, 2).to(getattr(torch, dtype))

    assert parameters_of(module)["weight"].dtype == np.dtype(dtype)


def test_averaged_counters_are_rounded_not_cut() -> None:
    module = _module()

    load_parameters(module, parameters_of(module) | {"1.num_batches_tracked": np.array(2.9)})

    assert int(module[1].num_batches_tracked) == 3


def test_foreign_byte_order_and_read_only_memory_are_read() -> None:
    module = torch.nn.Linear(2, 1, bias=False)
    weight = np.array([[1.0, 2.0]], dtype=">f4")
    weight.flags.writeable = False

    load_parameters(module, {"weight": weight})

    assert module.weight.tolist() == [[1.0, 2.0]]


def test_missing_and_unknown_names_are_both_named() -> None:
    given = parameters_of(_module())
    given["extra"] = given.pop("0.bias")

    with pytest.raises(ShapeMismatchError, match=r"lack \['0.bias'\].*unknown \['extra'\]"):
        load_parameters(_module(), given)


def test_shapes_are_never_broadcast_and_a_refusal_changes_nothing() -> None:
    module = _module()
    before = parameters_of(module)
    given = {name: array + 1 for name, array in before.items()} | {"1.bias": np.zeros(1)}

    with pytest.raises(
        ShapeMismatchError, match=r"'1.bias' has shape \[1\], the module wants \[2\]"
    ):
        load_parameters(module, given)

    np.testing.assert_array_equal(parameters_of(module)["0.weight"], before["0.weight"])


def test_values_that_are_not_real_numbers_are_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="complex128, wanted real numbers"):
        load_parameters(torch.nn.Linear(1, 1, bias=False), {"weight": np.array([[1j]])})


def test_state_that_is_no_tensor_is_refused() -> None:
    class Odd(torch.nn.Module):
        def get_extra_state(self) -> dict[str, int]:
            return {"a": 1}

        def set_extra_state(self, state: object) -> None:
            del state

    with pytest.raises(InvalidConfigError, match="'_extra_state' is a dict, not a tensor"):
        parameters_of(Odd())


def test_buffers_and_frozen_parameters_are_not_trainable() -> None:
    module = _module()
    module[0].bias.requires_grad_(False)

    assert trainable_names(module) == ("0.weight", "1.weight", "1.bias")
