"""The output layer is found from shapes, or said not to be."""

from __future__ import annotations

import pytest

from clma.config import CohortingConfig
from clma.errors import InvalidConfigError
from clma.parameters.output_layer import find_output_layer, output_tensors
from clma.records import TensorSpec


def layer(name: str, *shape: int, bias: int | None = None) -> list[TensorSpec]:
    """Return a torch layer: outputs first, and as many biases unless said."""
    biases = shape[0] if bias is None else bias
    return [
        TensorSpec(f"{name}.weight", "F32", shape),
        *([TensorSpec(f"{name}.bias", "F32", (biases,))] if biases else []),
    ]


def keras(name: str, *shape: int, bias: int | None = None) -> list[TensorSpec]:
    """Return a Keras layer: outputs last."""
    biases = shape[-1] if bias is None else bias
    return [
        TensorSpec(f"{name}/kernel", "F32", shape),
        *([TensorSpec(f"{name}/bias", "F32", (biases,))] if biases else []),
    ]


MLP = [*layer("hidden", 32, 64), *layer("a_head", 10, 32)]


@pytest.mark.parametrize("specs", [MLP, MLP[::-1]])
def test_output_layer_is_the_one_whose_outputs_nobody_takes(specs: list[TensorSpec]) -> None:
    """Neither the order of the file nor the names tell."""
    assert find_output_layer(specs) == "a_head"


def test_kernels_with_outputs_last_are_told_by_their_biases() -> None:
    assert find_output_layer([*keras("hidden", 64, 32), *keras("head", 32, 10)]) == "head"


def test_flattened_convolution_feeds_the_output_layer() -> None:
    norm = [TensorSpec(f"norm.{n}", "F32", (8,)) for n in ("weight", "bias", "running_mean")]
    specs = [*layer("conv", 8, 1, 3, 3), *norm, *layer("logit", 1, 8 * 49)]
    assert find_output_layer(specs) == "logit"


def test_linear_layer_that_feeds_a_convolution_is_no_output_layer() -> None:
    """As in squeeze and excitation: it scales the channels."""
    squeeze = [*layer("conv1", 8, 3, 3, 3), *layer("down", 2, 8), *layer("up", 16, 2)]
    specs = [*squeeze, *layer("conv2", 16, 16, 3, 3), *layer("head", 5, 16)]
    assert find_output_layer(specs) == "head"


def test_head_of_a_recurrent_cell_is_found() -> None:
    cell = [
        TensorSpec("lstm.weight_ih_l0", "F32", (64, 8)),
        TensorSpec("lstm.weight_hh_l0", "F32", (64, 16)),
        TensorSpec("lstm.bias_ih_l0", "F32", (64,)),
    ]
    assert find_output_layer([*cell, *layer("head", 3, 16)]) == "head"


DOUBTS = {
    "two heads": [*MLP, *layer("other", 4, 32)],
    "a table of words": [*MLP, *layer("words", 1000, 64, bias=0)],
    "an autoencoder": [*layer("encoder", 8, 64), *layer("decoder", 64, 8)],
    "a generator": [*layer("seed", 6272, 100), *layer("conv", 1, 128, 3, 3)],
    "all of one size": [*layer("first", 10, 10), *layer("second", 10, 10)],
    "outputs first or last": [*layer("one", 64, 32, bias=0), *layer("two", 32, 10, bias=0)],
    "both at once": [*layer("one", 32, 64), *keras("two", 32, 10)],
    "weight norm": [
        *layer("hidden", 32, 64),
        TensorSpec("head.weight_g", "F32", (10, 1)),
        TensorSpec("head.weight_v", "F32", (10, 32)),
    ],
    "no layer": [TensorSpec("w", "F32", (3,))],
    "nothing": [],
}


@pytest.mark.parametrize("specs", DOUBTS.values(), ids=DOUBTS)
def test_where_shapes_leave_a_doubt_there_is_none(specs: list[TensorSpec]) -> None:
    assert find_output_layer(specs) is None


def test_networks_of_the_simulation_have_one() -> None:
    pytest.importorskip("torch")
    from clma.adapters.torch import parameters_of
    from clma.simulation.cnn import cnn1d
    from clma.simulation.cnn2d import cnn2d
    from clma.simulation.mlp import mlp

    for network in (mlp(64), cnn1d(), cnn2d()):
        arrays = parameters_of(network)
        specs = [TensorSpec(n, "F32", a.shape) for n, a in arrays.items() if a.dtype.kind == "f"]
        assert find_output_layer(specs) == "output"


def test_tensors_of_the_layer_that_was_found_count() -> None:
    assert output_tensors(MLP, CohortingConfig()) == ("a_head.bias", "a_head.weight")


def test_a_named_layer_is_taken_as_it_is() -> None:
    chosen = output_tensors(MLP, CohortingConfig(output_layer="hidden"))
    assert chosen == ("hidden.bias", "hidden.weight")


def test_a_name_is_not_the_beginning_of_another() -> None:
    specs = [*layer("head", 4, 32), *layer("head2", 5, 32)]
    assert output_tensors(specs, CohortingConfig(output_layer="head"))[0] == "head.bias"
    assert len(output_tensors(specs, CohortingConfig(output_layer="head"))) == 2


def test_none_is_no_layer() -> None:
    assert output_tensors(MLP, CohortingConfig(output_layer="none")) == ()


def test_unknown_layer_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="'hat', it has a_head, hidden"):
        output_tensors(MLP, CohortingConfig(output_layer="hat"))
