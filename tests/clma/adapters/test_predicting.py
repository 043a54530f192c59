from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from clma.adapters.predicting import make_predictor
from clma.errors import InvalidConfigError

BATCH = np.random.default_rng(0).normal(size=(5, 2))


def test_a_torch_network_gives_the_softmax_of_its_outputs() -> None:
    torch = pytest.importorskip("torch")
    weights = {"weight": np.array([[0.0, 0.0], [1.0, 0.0]]), "bias": np.zeros(2)}

    predict = make_predictor(torch.nn.Linear(2, 2), weights, adapter="torch")

    assert predict([[0.0, 9.0]]).tolist() == [[0.5, 0.5]]
    np.testing.assert_allclose(predict(BATCH).sum(axis=1), 1, rtol=1e-6)


def test_a_single_output_of_a_torch_network_is_left_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    weights = {"weight": np.array([[2.0, 0.0]]), "bias": np.ones(1)}

    predict = make_predictor(torch.nn.Linear(2, 1), weights, adapter="torch")

    assert predict([[3.0, 0.0]]).tolist() == [[7.0]]


def test_an_estimator_gives_its_probabilities_or_its_outputs() -> None:
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression, LogisticRegression

    from clma.adapters.sklearn import prepare

    weights = {"linear.coef": np.zeros((1, 2)), "linear.intercept": np.zeros(1)}
    line = {"linear.coef": np.array([2.0, 0.0]), "linear.intercept": np.array(1.0)}
    logistic = prepare(LogisticRegression(), n_features=2, classes=[0, 1])
    regression = prepare(LinearRegression(), n_features=2)

    classify = make_predictor(logistic, weights, adapter="sklearn")
    estimate = make_predictor(regression, line, adapter="sklearn")

    assert classify(BATCH).tolist() == [[0.5, 0.5]] * 5
    assert estimate([[3.0, 0.0]]).tolist() == [[7.0]]


def test_a_keras_model_gives_what_it_returns() -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="Keras is not installed: make test-keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    weights = {"dense/kernel": np.array([[2.0], [0.0]]), "dense/bias": np.ones(1)}

    predict = make_predictor(model, weights, adapter="keras")

    assert predict([[3.0, 0.0]]).tolist() == [[7.0]]


@pytest.mark.parametrize(
    ("adapter", "wanted"),
    [("torch", r"torch\.nn\.Module"), ("sklearn", "a prepared scikit-learn estimator")],
)
def test_a_model_of_another_framework_is_named(adapter: Any, wanted: str) -> None:
    pytest.importorskip({"sklearn": "sklearn"}.get(adapter, adapter))

    with pytest.raises(InvalidConfigError, match=f"makes a dict, wanted .*{wanted}"):
        make_predictor({}, {}, adapter=adapter)


def test_a_classifier_without_probabilities_is_refused() -> None:
    pytest.importorskip("sklearn")
    from sklearn.linear_model import SGDClassifier

    from clma.adapters.sklearn import parameters_of, prepare

    hinge = prepare(SGDClassifier(), n_features=2, classes=[0, 1])

    with pytest.raises(InvalidConfigError, match="gives no probabilities"):
        make_predictor(hinge, parameters_of(hinge), adapter="sklearn")
