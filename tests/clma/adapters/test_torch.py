from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clma.adapters.torch import load_parameters, parameters_of, trainable_names  # noqa: E402
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError  # noqa: E402
from clma.parameters.selectors import select_by_name  # noqa: E402
from clma.parameters.tensor_file import specs_of  # noqa: E402


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


def test_a_frozen_backbone_travels_and_stays_frozen() -> None:
    source, target = _module(), _module()
    for module in (source, target):
        module[0].requires_grad_(False)

    load_parameters(target, parameters_of(source))

    assert torch.equal(target[0].weight, source[0].weight)
    assert [p.requires_grad for p in target.parameters()] == [False, False, True, True]


def test_an_optimizer_made_before_the_model_was_loaded_trains_the_loaded_one() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)

    load_parameters(module, {"weight": np.array([[5.0]])})
    module(torch.ones(1, 1)).sum().backward()
    optimizer.step()

    assert module.weight.item() == 4.0


def test_trainable_names_choose_what_cohorting_looks_at() -> None:
    module = _module()
    module[0].requires_grad_(False)
    specs = specs_of(parameters_of(module))

    assert select_by_name(specs, include=trainable_names(module)) == ("1.bias", "1.weight")


def test_tied_weights_travel_under_both_names_and_stay_tied() -> None:
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight

    load_parameters(module, {n: v + 1 for n, v in parameters_of(module).items()})

    assert module["b"].weight is module["a"].weight
    assert trainable_names(module) == ("a.weight", "a.bias", "b.weight", "b.bias")


def test_tensors_that_do_not_lie_in_order_travel_as_they_read() -> None:
    module = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    before = module.weight.detach().clone()

    taken = parameters_of(module)
    load_parameters(module, taken)

    assert taken["weight"].flags.c_contiguous
    assert torch.equal(module.weight, before)


def test_a_personal_part_neither_leaves_nor_is_touched() -> None:
    module = _module()
    head = module[1].weight.detach().clone()

    taken = parameters_of(module, personal=["1.*"])
    load_parameters(module, {n: v + 1 for n, v in taken.items()}, personal=["1.*"])

    assert sorted(taken) == ["0.bias", "0.weight"]
    assert torch.equal(module[1].weight, head)
    np.testing.assert_array_equal(parameters_of(module)["0.bias"], taken["0.bias"] + 1)


def test_a_federation_that_shares_the_personal_part_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match=r"unknown \['1.bias'"):
        load_parameters(_module(), parameters_of(_module()), personal=["1.*"])


@pytest.mark.parametrize(
    ("personal", "why"), [(["head.*"], "fits none of the names 0.weight"), (["*"], "nothing to")]
)
def test_patterns_that_mean_nothing_are_refused(personal: list[str], why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        parameters_of(_module(), personal=personal)
