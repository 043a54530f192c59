"""Plants send another model than the federation's, or the same one written otherwise."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clma.parameters.tensor_file import serialize_tensors
from clma.records import TensorSpec
from clma.round import RoundOutcome
from clma.rows import Verdict
from tests.acceptance.hostile.fleet import (
    CLIENTS,
    decided,
    found,
    model_zero,
    night,
    night_without,
    recorded,
    root_model,
    row_of,
    send,
    send_good,
    trained,
    verdicts,
)

PREFIXED = {f"module.{name}": value for name, value in trained("plant-b", 1).items()}


def without(name: str) -> dict[str, Any]:
    """Return plant-b's update without one tensor."""
    return {n: v for n, v in trained("plant-b", 1).items() if n != name}


SPOILED: list[tuple[str, str, Mapping[str, Any]]] = [
    (
        "SHAPE_MISMATCH",
        "'head.bias': expected [4] got [1]",
        {**trained("plant-b", 1), "head.bias": np.ones(1, np.float32)},
    ),
    (
        "SHAPE_MISMATCH",
        "'layer1.weight': expected [16, 8] got [1, 8]",
        {**trained("plant-b", 1), "layer1.weight": np.ones((1, 8), np.float32)},
    ),
    (
        "SHAPE_MISMATCH",
        "'bn.num_batches_tracked': expected [] got [1]",
        {**trained("plant-b", 1), "bn.num_batches_tracked": np.array([100])},
    ),
    ("NAMES_MISMATCH", "missing tensors: bn.running_var; surplus: none", without("bn.running_var")),
    (
        "NAMES_MISMATCH",
        "missing tensors: none; surplus: head2.weight",
        {**trained("plant-b", 1), "head2.weight": np.ones(4, np.float32)},
    ),
    ("NAMES_MISMATCH", "strip the 'module.' prefix", PREFIXED),
]


@pytest.fixture(scope="module")
def without_b(tmp_path_factory: pytest.TempPathFactory) -> RoundOutcome:
    return night_without(tmp_path_factory.mktemp("without"), "plant-b")


@pytest.mark.parametrize(("reason", "detail", "tensors"), SPOILED)
def test_another_model_costs_its_own_vote_only(
    tmp_path: Path, without_b: RoundOutcome, reason: str, detail: str, tensors: Mapping[str, Any]
) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-b"])
    send(federation, "plant-b", tensors)

    outcome = night(federation)

    assert decided(outcome) == decided(without_b)
    (row,) = recorded(federation, 1, "plant-b")
    assert (row.verdict, row.reason) == (Verdict.REJECTED, reason)
    assert detail in str(row.detail)


def widened() -> dict[str, Any]:
    """Return the model with a fifth class."""
    rng = np.random.default_rng(5)
    head = {"head.weight": rng.normal(size=(5, 16)), "head.bias": rng.normal(size=5)}
    return {**model_zero(), **{name: value.astype(np.float32) for name, value in head.items()}}


@pytest.mark.parametrize("says_so", [True, False])
def test_plants_that_lag_behind_a_wider_model_are_told_apart(tmp_path: Path, says_so: bool) -> None:
    """Whether they name the old model or, wrongly, the new one: the shape is what they are told."""
    lagging = ["plant-g", "plant-h"]
    federation = found(tmp_path / "with", base=widened())
    send_good(federation, but=lagging)
    old = "ab" * 32
    for client_id in lagging:
        send(federation, client_id, **({"base_digest": old} if says_so else {}))

    outcome = night(federation)

    expected = night_without(tmp_path / "without", *lagging, base=widened())
    assert decided(outcome) == decided(expected)
    for row in (row_of(outcome, client_id) for client_id in lagging):
        assert row.reason == "SHAPE_MISMATCH"
        assert "expected [5] got [4]" in str(row.detail)
        assert (row.base_digest == old) is says_so


def test_the_order_of_tensors_changes_no_bit(tmp_path: Path) -> None:
    outcomes = []
    for name in ("ordered", "reordered"):
        federation = found(tmp_path / name)
        send_good(federation, but=["plant-b"])
        tensors = trained("plant-b", 1)
        data = serialize_tensors(tensors) if name == "ordered" else backwards(tensors)
        send(federation, "plant-b", data)
        outcomes.append(night(federation))

    one, two = outcomes

    assert row_of(one, "plant-b").digest != row_of(two, "plant-b").digest
    assert decided(one) == decided(two)


def backwards(tensors: Mapping[str, Any]) -> bytes:
    """Write tensors in the opposite order, in the header and in the buffer."""
    parts = {n: (name_of(v), v.shape, v.tobytes()) for n, v in reversed(list(tensors.items()))}
    return raw_file(parts)


def name_of(array: Any) -> str:
    """Return what a safetensors header calls an array's dtype."""
    return {"float32": "F32", "int64": "I64"}[str(array.dtype)]


def raw_file(parts: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Write a safetensors file of any dtypes, as a foreign program would."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape, data) in parts.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [end, end := end + len(data)],
        }
    text = json.dumps(header).encode()
    buffer = b"".join(data for _, _, data in parts.values())
    return len(text).to_bytes(8, "little") + text + buffer


def test_counters_stay_whole_numbers_and_the_model_loads(tmp_path: Path) -> None:
    """A counter of batches becomes the largest; torch takes the published model as it is."""
    federation = found(tmp_path)
    for client_id, count in zip(CLIENTS, (100, 103, 250, 7, 100, 101, 249, 102), strict=True):
        counter = {"bn.num_batches_tracked": np.array(count, np.int64)}
        send(federation, client_id, {**trained(client_id, 1), **counter})
    night(federation)

    model = root_model(federation)

    assert {n: v.dtype for n, v in model.items()} == {n: v.dtype for n, v in model_zero().items()}
    network = torch.nn.ModuleDict(
        {
            "layer1": torch.nn.Linear(8, 16),
            "bn": torch.nn.BatchNorm1d(16, affine=False),
            "head": torch.nn.Linear(16, 4),
        }
    )
    network.load_state_dict({n: torch.tensor(v) for n, v in model.items()}, strict=True)
    assert network["bn"].num_batches_tracked == 250


def test_counters_and_statistics_point_nowhere(tmp_path: Path) -> None:
    """A flagged plant in which only they changed has not moved, and stays in its cohort."""
    federation = found(tmp_path, n_rounds=1)
    base = root_model(federation)
    for name in ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked"):
        base[name] = base[name] + base[name].dtype.type(9)
    send(federation, "plant-a", base, drift_flag=True)
    send_good(federation, but=["plant-a"])

    outcome = night(federation)

    assert [row.decision for row in outcome.decision.cohorting] == ["kept"]
    assert outcome.state.clients["plant-a"].cohort_id == "c0"


def as_dtype(tensors: Mapping[str, Any], dtype: str) -> bytes:
    """Write tensors with all floats in one dtype."""
    specs = [
        TensorSpec(name, "I64" if value.dtype.kind == "i" else dtype, value.shape)
        for name, value in tensors.items()
    ]
    return serialize_tensors(tensors, specs)


def exact_mean(columns: list[np.ndarray], weights: list[int]) -> np.ndarray:
    """Return the weighted mean without a rounding of its own but the last one to float64."""
    flat = [column.astype(np.float64).ravel() for column in columns]
    sums = [
        math.fsum(w * float(v) for w, v in zip(weights, values, strict=True))
        for values in zip(*flat, strict=True)
    ]
    return (np.array(sums) / sum(weights)).reshape(columns[0].shape)


def test_half_precision_near_its_limit_is_right_to_one_unit(tmp_path: Path) -> None:
    start = {n: v if v.dtype.kind == "i" else v * 0 + 60_000 for n, v in model_zero().items()}
    federation = found(tmp_path, base=as_dtype(start, "F16"))
    rng = np.random.default_rng(8)
    sent = {}
    for client_id in CLIENTS:
        value = (60_000 + rng.normal(scale=2_000, size=(4, 16))).clip(-65_504, 65_504)
        sent[client_id] = value.astype(np.float16)
        send(federation, client_id, as_dtype({**start, "head.weight": sent[client_id]}, "F16"))
    night(federation)

    got = root_model(federation)["head.weight"]

    exact = exact_mean(list(sent.values()), [100 + 10 * i for i in range(8)])
    assert got.dtype == np.float16
    assert np.isfinite(got).all()
    assert (np.abs(got.astype(np.float64) - exact) <= np.spacing(got).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F64"])
def test_other_widths_are_averaged_and_keep_their_dtype(tmp_path: Path, dtype: str) -> None:
    federation = found(tmp_path, base=as_dtype(model_zero(), dtype))
    for client_id in CLIENTS:
        send(federation, client_id, as_dtype(trained(client_id, 1), dtype))

    outcome = night(federation)

    assert len(outcome.decision.drift) == len(CLIENTS)
    path = federation.store.local_path(
        f"models/{outcome.state.cohorts['c0'].model_digest}.safetensors"
    )
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        assert file.get_slice("head.weight").get_dtype() == dtype


def test_mixed_widths_are_refused(tmp_path: Path) -> None:
    federation = found(tmp_path, base=as_dtype(model_zero(), "BF16"))
    for client_id in CLIENTS[1:]:
        send(federation, client_id, as_dtype(trained(client_id, 1), "BF16"))
    send(federation, "plant-a")

    outcome = night(federation)

    assert verdicts(outcome) == {"plant-a": "DTYPE_MISMATCH"}
    assert "is F32, wanted BF16" in str(row_of(outcome, "plant-a").detail)


@pytest.mark.parametrize(
    ("dtype", "width"), [("F8_E4M3", 1), ("F8_E5M2", 1), ("C64", 8), ("C128", 16), ("F4", 1)]
)
def test_a_dtype_that_cannot_be_averaged_is_refused(
    tmp_path: Path, without_b: RoundOutcome, dtype: str, width: int
) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-b"])
    parts = {n: (name_of(v), v.shape, v.tobytes()) for n, v in trained("plant-b", 1).items()}
    send(federation, "plant-b", raw_file({**parts, "head.bias": (dtype, (4,), bytes(4 * width))}))

    outcome = night(federation)

    assert decided(outcome) == decided(without_b)
    assert row_of(outcome, "plant-b").reason == "DTYPE_UNSUPPORTED"
