from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clma.aggregation.weighted_mean import weighted_mean
from clma.cohorting.placement import AggregationJob
from clma.config import preset_config
from clma.errors import EmptyCohortError, InvalidUpdateError, ShapeMismatchError
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ArtifactRef, SealedUpdate, TensorSpec
from clma.round import aggregate_cohort

ROWS = [np.array([1.0, 2.0]), np.array([4.0, -2.0]), np.array([0.5, 0.25])]


def average(shelf, models, weights, base=None):
    """Average models on the shelf; return the result's file."""
    digests = [shelf.put(m).sha256 for m in models]
    base_digest = shelf.put(base or models[0]).sha256
    return shelf.open(average_files(shelf, digests, weights, base_digest))


def average_files(shelf, digests, weights, base_digest, **aggregation):
    voters = [
        SealedUpdate(f"p{i}", base_digest, ArtifactRef(digest, digest), weight, False)
        for i, (digest, weight) in enumerate(zip(digests, weights, strict=True))
    ]
    job = AggregationJob("c0", tuple(voters))
    config = preset_config("test", aggregation=aggregation)
    made = aggregate_cohort(job, shelf.open, base_digest, config, shelf.save)
    return ArtifactRef(made.model_digest, made.model_digest)


def test_weights_are_example_counts() -> None:
    assert weighted_mean([np.array([0.0]), np.array([4.0])], [1, 3]).tolist() == [3.0]


def test_scaling_all_weights_changes_no_bit() -> None:
    assert (weighted_mean(ROWS, [1, 2, 3]) == weighted_mean(ROWS, [7, 14, 21])).all()


def test_unit_weights_equal_the_plain_mean() -> None:
    np.testing.assert_allclose(weighted_mean(ROWS, [1, 1, 1]), np.mean(ROWS, axis=0))


def test_weight_zero_is_absence() -> None:
    assert (weighted_mean(ROWS, [1, 0, 2]) == weighted_mean([ROWS[0], ROWS[2]], [1, 2])).all()


@pytest.mark.parametrize("weights", [[], [0, 0, 0]])
def test_nobodys_average_is_refused(weights: list[float]) -> None:
    with pytest.raises(EmptyCohortError):
        weighted_mean(ROWS[: len(weights)], weights)


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf")])
def test_bad_weight_is_refused(weight: float) -> None:
    with pytest.raises(InvalidUpdateError, match="wanted a finite number >= 0"):
        weighted_mean(ROWS, [1, weight, 1])


def test_nothing_is_broadcast() -> None:
    with pytest.raises(ShapeMismatchError):
        weighted_mean([np.zeros((3, 3)), np.zeros(3)], [1, 1])


def test_inputs_are_not_modified() -> None:
    before = [row.copy() for row in ROWS]
    weighted_mean(ROWS, [1, 2, 3])
    assert all((a == b).all() for a, b in zip(before, ROWS, strict=True))


def test_counters_keep_dtype_and_become_the_largest(shelf) -> None:
    models = [{"n": np.array(v, np.int64), "w": [0.0]} for v in (100, 2**53 + 1, 103)]
    with average(shelf, models, [1, 1, 1]) as file:
        assert file.spec("n").dtype == "I64"
        assert int(file.read("n")) == 2**53 + 1


def test_masks_stay_the_base_models(shelf) -> None:
    models = [{"m": np.array(m), "w": [0.0]} for m in ([True, True], [False, True])]
    base = {"m": np.array([True, False]), "w": [0.0]}
    with average(shelf, models, [1, 1], base=base) as file:
        assert file.read("m").tolist() == [True, False]


def test_half_precision_is_summed_in_double(shelf) -> None:
    models = [{"w": np.full(3, 60_000, np.float16)} for _ in range(8)]
    with average(shelf, models, [1] * 8) as file:
        assert file.read("w").dtype == np.float16
        assert file.read("w").tolist() == [60_000] * 3


LARGEST = {
    "F16": 65504.0,
    "BF16": 3.3895313892515355e38,
    "F32": 3.4028234663852886e38,
    "F64": 1e100,
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@pytest.mark.parametrize("dtype", sorted(LARGEST))
@given(weights=st.lists(st.integers(1, 10**12), min_size=1, max_size=12))
def test_the_mean_of_the_largest_is_the_largest(shelf, dtype: str, weights: list[int]) -> None:
    """Shares that add up to a bit more than one must not make an infinity."""
    specs = [TensorSpec("w", dtype, (1,))]
    data = serialize_tensors({"w": np.array([-LARGEST[dtype]])}, specs)
    digest = shelf.save(data)

    mean = average_files(shelf, [digest] * len(weights), weights, digest)

    assert shelf.read(mean.sha256) == pytest.approx([-LARGEST[dtype]], rel=1e-12)
