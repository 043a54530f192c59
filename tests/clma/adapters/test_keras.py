"""Runs on the backend that KERAS_BACKEND names; torch, which is there, where nothing does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: make test-keras")

from clma.adapters.keras import (  # noqa: E402
    load_parameters,
    losses_of,
    parameters_of,
    trainable_names,
)
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError  # noqa: E402
from clma.parameters.output_layer import find_output_layer  # noqa: E402
from clma.parameters.selectors import select_default  # noqa: E402
from clma.parameters.tensor_file import specs_of  # noqa: E402


def _model(dtype: str = "float32") -> Any:
    layers = [
        keras.Input((3,)),
        keras.layers.Dense(4, dtype=dtype),
        keras.layers.BatchNormalization(dtype=dtype),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(2, dtype=dtype),
    ]
    return keras.Sequential(layers)


def test_weights_come_back_as_they_were_in_another_model() -> None:
    source, target = _model(), _model()
    samples = np.ones((2, 3), np.float32)

    load_parameters(target, parameters_of(source))

    for name, array in parameters_of(target).items():
        np.testing.assert_array_equal(array, parameters_of(source)[name])
    np.testing.assert_array_equal(
        target.predict(samples, verbose=0), source.predict(samples, verbose=0)
    )


def test_a_model_has_the_same_names_however_many_were_made_before() -> None:
    wanted = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]

    for _ in range(2):
        names = [n for n in parameters_of(_model()) if n.startswith("dense")]
        assert names == wanted


def test_nested_models_and_recurrent_layers_are_named_by_their_place() -> None:
    def build() -> Any:
        inputs = keras.Input((5, 3))
        inner = keras.Sequential([keras.Input((5, 3)), keras.layers.Dense(4)])
        states = keras.layers.Bidirectional(keras.layers.LSTM(2))(inner(inputs))
        return keras.Model(inputs, keras.layers.Dense(2, name="head")(states))

    first, second = parameters_of(build()), parameters_of(build())

    assert list(first) == list(second)
    assert "head/kernel" in first
    assert "bidirectional/forward_lstm/lstm_cell/kernel" in first


def test_seeds_of_random_layers_stay_at_home() -> None:
    assert not any("seed" in name for name in parameters_of(_model()))


def test_statistics_travel_but_are_nothing_that_was_learned() -> None:
    model = _model()
    names = set(parameters_of(model))
    statistics = {"batch_normalization/moving_mean", "batch_normalization/moving_variance"}

    assert statistics <= names
    assert set(select_default(specs_of(parameters_of(model)))) == names - statistics
    assert set(trainable_names(model)) == names - statistics


def test_frozen_layers_travel_and_are_not_trainable() -> None:
    model = _model()
    model.layers[0].trainable = False

    assert "dense/kernel" in parameters_of(model)
    assert "dense/kernel" not in trainable_names(model)
    assert "dense_1/kernel" in trainable_names(model)


def test_the_output_layer_is_found_by_its_shapes() -> None:
    layers = [keras.Input((3,)), keras.layers.Dense(5), keras.layers.Dense(2)]

    assert find_output_layer(specs_of(parameters_of(keras.Sequential(layers)))) == "dense_1"


def test_arrays_never_alias_the_model() -> None:
    model = _model()
    taken = parameters_of(model)
    load_parameters(model, taken)
    before = {name: array.copy() for name, array in taken.items()}

    taken["dense/bias"][:] = 7.0
    assert not (parameters_of(model)["dense/bias"] == 7.0).any()

    model.layers[0].bias.assign(np.full(4, 9.0, np.float32))
    np.testing.assert_array_equal(taken["dense/kernel"], before["dense/kernel"])
    assert (taken["dense/bias"] == 7.0).all()


def test_bfloat16_is_widened_and_narrowed_back_exactly() -> None:
    model = _model("bfloat16")
    taken = parameters_of(model)

    load_parameters(model, taken)

    assert taken["dense/kernel"].dtype == np.float32
    assert model.layers[0].kernel.dtype == "bfloat16"
    np.testing.assert_array_equal(parameters_of(model)["dense/kernel"], taken["dense/kernel"])


def test_training_goes_on_from_the_weights_that_were_loaded() -> None:
    """A step from far away ends nearer to there than to where a new model is."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    load_parameters(model, {n: v + 100 for n, v in parameters_of(model).items()})

    model.train_on_batch(np.ones((4, 3), np.float32), np.full((4, 2), 400, np.float32))

    assert all((v > 50).all() for v in parameters_of(model).values())


def test_foreign_byte_order_and_read_only_memory_are_read() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    kernel = np.array([[1.0], [2.0]], dtype=">f8")
    kernel.flags.writeable = False

    load_parameters(model, {"dense/kernel": kernel})

    assert parameters_of(model)["dense/kernel"].tolist() == [[1.0], [2.0]]


def test_missing_and_unknown_names_are_both_named() -> None:
    given = parameters_of(_model())
    given["extra"] = given.pop("dense/bias")

    with pytest.raises(ShapeMismatchError, match=r"lack \['dense/bias'\].*unknown \['extra'\]"):
        load_parameters(_model(), given)


def test_shapes_are_never_broadcast_and_a_refusal_changes_nothing() -> None:
    model = _model()
    before = parameters_of(model)
    given = {n: v + 1 for n, v in before.items()} | {"dense_1/bias": np.zeros(1)}

    with pytest.raises(ShapeMismatchError, match=r"'dense_1/bias' has shape \[1\]"):
        load_parameters(model, given)

    np.testing.assert_array_equal(parameters_of(model)["dense/kernel"], before["dense/kernel"])


def test_values_that_are_not_real_numbers_are_refused() -> None:
    model = _model()
    given = parameters_of(model) | {"dense/bias": np.full(4, 1j)}

    with pytest.raises(InvalidUpdateError, match="complex128, wanted real numbers"):
        load_parameters(model, given)


def test_a_model_that_was_not_built_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="no weights yet"):
        parameters_of(keras.Sequential([keras.layers.Dense(2)]))


@pytest.mark.parametrize(
    "loss", ["sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy()]
)
def test_the_loss_is_that_of_each_sample(loss: Any) -> None:
    layers = [keras.Input((2,)), keras.layers.Dense(2, activation="softmax", use_bias=False)]
    model = keras.Sequential(layers)
    model.compile("sgd", loss)
    load_parameters(model, {"dense/kernel": np.zeros((2, 2))})

    assert losses_of(model, np.eye(2), [0, 1]) == pytest.approx([np.log(2)] * 2)


def test_a_squared_error_is_the_mean_over_a_samples_outputs() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2, use_bias=False)])
    model.compile("sgd", "mse")
    load_parameters(model, {"dense/kernel": np.ones((1, 2))})

    assert losses_of(model, [[1.0], [1.0]], [[1.0, 3.0], [1.0, 1.0]]) == pytest.approx([2.0, 0.0])


def test_a_model_without_a_loss_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="wanted one loss"):
        losses_of(_model(), np.ones((1, 3)), [0])


def test_names_are_the_same_in_another_process() -> None:
    code = (
        "import keras; from clma.adapters.keras import parameters_of;"
        "m = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)]);"
        "print(*parameters_of(m))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)]

    assert found.stdout.split() == list(parameters_of(keras.Sequential(layers)))
