from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clma.aggregation.weighted_mean import average_models, weighted_mean
from clma.config import preset_config
from clma.errors import EmptyCohortError, InvalidUpdateError, ShapeMismatchError
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ArtifactRef, SealedUpdate, TensorSpec

ROWS = [np.array([1.0, 2.0]), np.array([4.0, -2.0]), np.array([0.5, 0.25])]


def average(shelf, models, weights, base=None):
    """Average models on the shelf; return the result's file."""
    refs = [shelf.put(m) for m in models]
    return shelf.open(average_files(shelf, refs, weights, shelf.put(base or models[0])))


def average_files(shelf, refs, weights, base):
    voters = [
        SealedUpdate(f"p{i}", base.sha256, ref, weight, False)
        for i, (ref, weight) in enumerate(zip(refs, weights, strict=True))
    ]
    digest = shelf.save(average_models(voters, preset_config("test"), base, shelf.open))
    return ArtifactRef(digest, digest)


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
    models = [{"n": np.array(v, np.int64)} for v in (100, 2**53 + 1, 103)]
    with average(shelf, models, [1, 1, 1]) as file:
        assert file.spec("n").dtype == "I64"
        assert int(file.read("n")) == 2**53 + 1


def test_masks_stay_the_base_models(shelf) -> None:
    models = [{"m": np.array([True, True])}, {"m": np.array([False, True])}]
    with average(shelf, models, [1, 1], base={"m": np.array([True, False])}) as file:
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
    ref = ArtifactRef(digest, digest)

    mean = average_files(shelf, [ref] * len(weights), weights, ref)

    assert shelf.read(mean.sha256) == pytest.approx([-LARGEST[dtype]], rel=1e-12)
