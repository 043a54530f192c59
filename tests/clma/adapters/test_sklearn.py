from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Perceptron,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVC

from clma.adapters.sklearn import (
    load_parameters,
    losses_of,
    parameters_of,
    prepare,
)
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError
from clma.parameters.output_layer import find_output_layer
from clma.parameters.tensor_file import specs_of

CLASSES = [0, 1, 2]
BINARY = ["bad", "good"]


def classifiers() -> list[Any]:
    return [
        pytest.param(lambda: SGDClassifier(loss="log_loss"), id="sgd"),
        pytest.param(lambda: Perceptron(), id="perceptron"),
        pytest.param(lambda: LogisticRegression(warm_start=True), id="logistic"),
        pytest.param(lambda: MLPClassifier((4, 3), random_state=0), id="mlp"),
    ]


def regressors() -> list[Any]:
    return [
        pytest.param(lambda: SGDRegressor(), id="sgd"),
        pytest.param(lambda: LinearRegression(), id="least-squares"),
        pytest.param(lambda: MLPRegressor(hidden_layer_sizes=(4,), random_state=0), id="mlp"),
    ]


def samples(classes: list[Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    readings = rng.normal(size=(60, 2))
    targets = readings[:, 0] if classes is None else np.resize(classes, 60)
    return readings + (
        0 if classes is None else np.resize(np.arange(len(classes)), (60, 1))
    ), targets


def learn(model: Any, readings: np.ndarray, targets: np.ndarray) -> Any:
    return (model.partial_fit if hasattr(model, "partial_fit") else model.fit)(readings, targets)


def chances(model: Any, readings: np.ndarray) -> np.ndarray:
    proba = getattr(model, "predict_proba", None)
    return np.asarray(model.decision_function(readings) if proba is None else proba(readings))


@pytest.mark.parametrize("classes", [CLASSES, BINARY])
@pytest.mark.parametrize("make", classifiers())
def test_a_new_classifier_predicts_what_the_trained_one_does(make: Any, classes: Any) -> None:
    readings, labels = samples(classes)
    trained = learn(prepare(make(), n_features=2, classes=classes), readings, labels)
    new = prepare(make(), n_features=2, classes=classes)

    assert not np.array_equal(chances(new, readings), chances(trained, readings))

    load_parameters(new, parameters_of(trained))

    np.testing.assert_array_equal(chances(new, readings), chances(trained, readings))
    np.testing.assert_array_equal(new.predict(readings), trained.predict(readings))


@pytest.mark.parametrize("make", regressors())
def test_a_new_regressor_predicts_what_the_trained_one_does(make: Any) -> None:
    readings, targets = samples()
    trained = learn(prepare(make(), n_features=2), readings, targets)
    new = prepare(make(), n_features=2)

    load_parameters(new, parameters_of(trained))

    np.testing.assert_array_equal(new.predict(readings), trained.predict(readings))


@pytest.mark.parametrize(
    "model",
    [
        SGDClassifier(learning_rate="constant", eta0=0.01),
        Perceptron(),
        MLPClassifier((4,), random_state=0),
    ],
)
def test_partial_fit_goes_on_from_the_weights_that_were_loaded(model: Any) -> None:
    """A step from far away ends nearer to there than to where a new model is."""
    readings, labels = samples(CLASSES)
    prepare(model, n_features=2, classes=CLASSES)
    far = {name: values + 1000 for name, values in parameters_of(model).items()}

    load_parameters(model, far)
    model.partial_fit(readings, labels)

    assert all((values > 500).all() for values in parameters_of(model).values())


def test_a_warm_start_goes_on_from_the_weights_that_were_loaded() -> None:
    readings, labels = samples(CLASSES)
    done = LogisticRegression(warm_start=True).fit(readings, labels)
    model = prepare(LogisticRegression(warm_start=True), n_features=2, classes=CLASSES)

    load_parameters(model, parameters_of(done))
    model.fit(readings, labels)

    assert model.n_iter_.max() < done.n_iter_.max()


def test_preparing_leaves_no_trace_in_schedule_and_moments() -> None:
    sgd = prepare(SGDClassifier(), n_features=2, classes=CLASSES)
    mlp = prepare(MLPClassifier(), n_features=2, classes=CLASSES)

    assert (sgd.t_, mlp.t_) == (1.0, 0)
    assert not hasattr(mlp, "_optimizer")


def test_arrays_never_alias_the_estimator() -> None:
    model = prepare(SGDClassifier(), n_features=2, classes=CLASSES)
    taken = parameters_of(model)
    load_parameters(model, taken)

    taken["linear.coef"][:] = 7.0

    assert not (model.coef_ == 7.0).any()
    assert not np.shares_memory(parameters_of(model)["linear.coef"], model.coef_)


def test_dtypes_of_the_estimator_are_kept() -> None:
    model = prepare(SGDClassifier(), n_features=2, classes=CLASSES, dtype=np.float32)

    load_parameters(model, {n: v.astype(np.float64) for n, v in parameters_of(model).items()})

    assert {v.dtype for v in parameters_of(model).values()} == {np.dtype(np.float32)}


def test_an_intercept_that_is_a_number_stays_one() -> None:
    model = prepare(LinearRegression(fit_intercept=False), n_features=2)

    load_parameters(model, parameters_of(model))

    assert parameters_of(model)["linear.intercept"].shape == ()
    assert model.intercept_ == 0.0


@pytest.mark.parametrize("hidden", [(4,), (5, 4)])
def test_the_last_layer_of_a_perceptron_is_found_by_its_shapes(hidden: tuple[int, ...]) -> None:
    model = prepare(MLPClassifier(hidden), n_features=2, classes=CLASSES)

    assert find_output_layer(specs_of(parameters_of(model))) == f"layers.{len(hidden)}"


def test_missing_and_unknown_names_are_both_named() -> None:
    model = prepare(SGDClassifier(), n_features=2, classes=CLASSES)
    given = parameters_of(model)
    given["extra"] = given.pop("linear.coef")

    with pytest.raises(ShapeMismatchError, match=r"lack \['linear.coef'\].*unknown \['extra'\]"):
        load_parameters(model, given)


def test_shapes_are_never_broadcast_and_a_refusal_changes_nothing() -> None:
    model = prepare(SGDClassifier(), n_features=2, classes=CLASSES)
    given = {"linear.coef": np.ones((3, 2)), "linear.intercept": np.ones(1)}

    with pytest.raises(ShapeMismatchError, match=r"has shape \[1\], the estimator wants \[3\]"):
        load_parameters(model, given)

    assert not model.coef_.any()


def test_values_that_are_not_real_numbers_are_refused() -> None:
    model = prepare(SGDRegressor(), n_features=1)
    given = parameters_of(model) | {"linear.coef": np.array([1j])}

    with pytest.raises(InvalidUpdateError, match="complex128, wanted real numbers"):
        load_parameters(model, given)


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        (SGDClassifier(average=True), {"classes": CLASSES}, "average=True, wanted average=False"),
        (SGDClassifier(), {}, "classes is None, wanted its classes"),
        (SGDRegressor(), {"classes": CLASSES}, "wanted none: it is no classifier"),
        (SGDClassifier(early_stopping=True), {"classes": CLASSES}, "early_stopping"),
        (SGDClassifier(loss="no such"), {"classes": CLASSES}, "SGDClassifier refuses: .*loss"),
        (SVC(kernel="linear"), {"classes": CLASSES}, "SVC computes coef_"),
        (SVC(), {"classes": CLASSES}, "SVC computes coef_"),
    ],
)
def test_what_cannot_travel_is_refused_by_name(model: Any, options: Any, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        prepare(model, n_features=2, **options)


def test_an_estimator_without_weights_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="neither fitted nor prepared"):
        parameters_of(SGDClassifier())


def test_sparse_weights_are_refused() -> None:
    model = prepare(SGDClassifier(), n_features=2, classes=CLASSES)

    with pytest.raises(InvalidConfigError, match="sparse"):
        parameters_of(model.sparsify())


def test_the_loss_of_a_classifier_is_the_true_class_surprise() -> None:
    model = prepare(SGDClassifier(loss="log_loss"), n_features=1, classes=[0, 1])
    load_parameters(model, {"linear.coef": np.array([[1.0]]), "linear.intercept": np.zeros(1)})

    losses = losses_of(model, [[0.0], [0.0], [-5000.0]], [0, 1, 1])

    assert losses[:2] == pytest.approx([np.log(2), np.log(2)])
    assert 700 < losses[2] < 746


def test_the_loss_of_a_regressor_is_the_squared_error_over_its_outputs() -> None:
    model = prepare(LinearRegression(), n_features=1, n_outputs=2)
    load_parameters(model, {"linear.coef": np.ones((2, 1)), "linear.intercept": np.zeros(2)})

    assert losses_of(model, [[1.0]], [[1.0, 3.0]]).tolist() == [2.0]


def test_a_loss_without_probabilities_or_of_a_foreign_class_is_refused() -> None:
    hinge = prepare(SGDClassifier(), n_features=1, classes=[0, 1])
    logistic = prepare(SGDClassifier(loss="log_loss"), n_features=1, classes=[0, 1])

    with pytest.raises(InvalidConfigError, match="wanted loss='log_loss'"):
        losses_of(hinge, [[0.0]], [0])
    with pytest.raises(InvalidUpdateError, match=r"none of the classes \[0, 1\]"):
        losses_of(logistic, [[0.0]], [2])
