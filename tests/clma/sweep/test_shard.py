"""What one pass over a round's files comes to, however it is divided."""

from __future__ import annotations

import numpy as np
import pytest

from clma.aggregation import AGGREGATORS
from clma.cohorting.contract import Candidate, CohortingUnit, UnitMember, Witness
from clma.cohorting.placement import AggregationJob
from clma.cohorting.units import cohorting_units
from clma.config import FederationConfig, override_config, preset_config
from clma.drift.quarantine import quarantine_clients
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ArtifactRef, SealedUpdate, TensorSpec
from clma.round import aggregate_cohort, columns_of
from clma.sweep.columns import BLOCK, MIN_BLOCKS, Span, plan_columns
from clma.sweep.inner_products import MAX_WIDE_ROWS, inner_products
from clma.sweep.means import Sweep
from clma.sweep.plan import SweepPlan, plan_sweep, shards
from clma.sweep.shard import measurements, sweep_shard, unit_evidence
from clma.sweep.sums import added
from clma.sweep.votes import Votes
from tests.clma.shelf import Shelf, one_cohort, sealed

CONFIG = preset_config("test")
SHAPES = {"a": (3 * MIN_BLOCKS, BLOCK), "b": (5,), "head": (7, 11)}
"""Three stripes to divide."""


def model(rng: np.random.Generator, shift: float = 0.0) -> dict[str, np.ndarray]:
    return {n: (rng.normal(size=s) + shift).astype(np.float32) for n, s in SHAPES.items()}


def flat(tensors: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([tensors[n].ravel().astype(np.float64) for n in sorted(tensors)])


class Fleet:
    """Seven clients of one base model, three of them flagged."""

    def __init__(self, shelf: Shelf, config: FederationConfig = CONFIG) -> None:
        rng = np.random.default_rng(0)
        self.shelf, self.config = shelf, config
        self.base_tensors = model(rng)
        self.base = shelf.put(self.base_tensors)
        self.models = [model(rng) for _ in range(7)]
        self.updates = [
            SealedUpdate(f"p{i}", self.base.sha256, shelf.put(m), 10 + i, i >= 4)
            for i, m in enumerate(self.models)
        ]
        self.state = one_cohort(self.base.sha256, [u.client_id for u in self.updates])
        self.columns = columns_of(self.base, shelf.open, config)
        round_ = sealed(self.updates)
        triage = quarantine_clients(self.state, round_, config)
        self.plan = plan_sweep(
            round_, triage, cohorting_units(self.state, round_, triage, config), config
        )

    def sweep(self, count: int):
        """Return the sums of all shards and the votes of every job."""
        votes: dict[str, list[Votes]] = {}

        def save(job: AggregationJob, found: Votes) -> None:
            votes.setdefault(job.cohort_id, []).append(found)

        sums = [
            sweep_shard(self.plan, s, self.columns, self.shelf.open, self.config, save)
            for s in shards(count)
        ]
        return sums, votes

    def evidence(self, count: int):
        sums, _ = self.sweep(count)
        return unit_evidence(
            self.plan.units[0], [s.units[0] for s in sums], self.columns, self.config.cohorting
        )


@pytest.fixture
def fleet(shelf: Shelf) -> Fleet:
    return Fleet(shelf)


@pytest.mark.parametrize("count", [2, 3, 16])
def test_number_of_shards_changes_no_bit(fleet: Fleet, count: int) -> None:
    one, several = fleet.evidence(1), fleet.evidence(count)
    assert one.movements.gram.tobytes() == several.movements.gram.tobytes()
    assert one.movements.layer_squares.tobytes() == several.movements.layer_squares.tobytes()
    assert one.movements.means.tobytes() == several.movements.means.tobytes()
    assert one.ks_statistics.tobytes() == several.ks_statistics.tobytes()


@pytest.mark.parametrize("method", [*AGGREGATORS, "robust"])
def test_votes_of_all_shards_make_the_model_of_one_pass(shelf: Shelf, method: str) -> None:
    aggregation = {"method": method, "n_byzantine": 0, "clip_factor": 0.99, "trim_fraction": 0.3}
    fleet = Fleet(shelf, preset_config("test", aggregation=aggregation))
    job = fleet.plan.jobs[0]
    args = (job, shelf.open, fleet.base.sha256, fleet.config, shelf.save)
    for count in (1, 2, 5):
        _, votes = fleet.sweep(count)
        assert aggregate_cohort(*args, votes["c0"]) == aggregate_cohort(*args)


@pytest.mark.parametrize("count", [2, 5])
def test_number_of_shards_changes_no_bit_of_what_rules_look_at(shelf: Shelf, count: int) -> None:
    fleet = Fleet(shelf, preset_config("test", aggregation={"method": "geometric_median"}))

    def products(votes: list[Votes]) -> tuple[bytes, bytes]:
        norms = np.concatenate([v.norm_squares for v in votes], axis=1)
        return added(g for v in votes for g in v.grams).tobytes(), norms.tobytes()

    assert products(fleet.sweep(count)[1]["c0"]) == products(fleet.sweep(1)[1]["c0"])


def test_mean_is_the_weighted_mean_in_double(fleet: Fleet) -> None:
    job = fleet.plan.jobs[0]
    made = aggregate_cohort(job, fleet.shelf.open, fleet.base.sha256, CONFIG, fleet.shelf.save)
    weights = np.array([10, 11, 12, 13]) / 46
    for name in SHAPES:
        wanted = sum(
            w * m[name].astype(np.float64) for w, m in zip(weights, fleet.models, strict=False)
        )
        got = fleet.shelf.read(made.model_digest, name)
        np.testing.assert_allclose(got, wanted.ravel(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("method", ["weighted_mean", "median", "geometric_median"])
def test_every_client_is_measured_from_the_model_it_was_sent(
    shelf: Shelf, method: str, count: int
) -> None:
    fleet = Fleet(shelf, preset_config("test", aggregation={"method": method}))
    sums, _ = fleet.sweep(count)
    found = {m.client_id: m.update_norm for m in measurements(fleet.plan, sums)}
    base = flat(fleet.base_tensors)
    wanted = {f"p{i}": float(np.linalg.norm(flat(m) - base)) for i, m in enumerate(fleet.models)}
    assert found == pytest.approx(wanted, rel=1e-9)


def test_evidence_equals_the_dense_products(fleet: Fleet) -> None:
    moved = np.stack([flat(m) for m in fleet.models[4:]]) - flat(fleet.base_tensors)
    movements = fleet.evidence(2).movements
    np.testing.assert_allclose(movements.gram, moved @ moved.T, rtol=1e-12)
    np.testing.assert_allclose(movements.means, moved.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(movements.layer_squares.sum(axis=0), np.diag(movements.gram))
    assert movements.names == ("a", "b", "head")


def test_tensors_that_are_not_selected_count_for_nothing_but_the_mean(shelf: Shelf) -> None:
    config = override_config(
        CONFIG, ["cohorting.selector=name_filter", 'cohorting.include=["head"]']
    )
    fleet = Fleet(shelf, config)
    sums, _ = fleet.sweep(2)
    norm = measurements(fleet.plan, sums)[0].update_norm
    gap = fleet.models[0]["head"].astype(np.float64) - fleet.base_tensors["head"]
    assert norm == pytest.approx(float(np.linalg.norm(gap)))
    assert fleet.evidence(2).movements.names == ("head",)


def test_files_may_lay_out_their_tensors_in_any_order(fleet: Fleet, shelf: Shelf) -> None:
    before = fleet.evidence(1).movements.gram
    for i, update in enumerate(fleet.updates):
        data = shuffled_file(fleet.models[i])
        digest = shelf.save(data)
        (shelf._folder / update.tensors.sha256).write_bytes((shelf._folder / digest).read_bytes())
    assert fleet.evidence(1).movements.gram.tobytes() == before.tobytes()


def shuffled_file(tensors: dict[str, np.ndarray]) -> bytes:
    import json

    header, body = {}, b""
    for name in sorted(tensors, reverse=True):
        raw = tensors[name].tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensors[name].shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


WEIGHED = preset_config("test", cohorting={"output_weight": 0.5, "output_layer": "head"})


def test_output_layer_has_products_of_its_own(shelf: Shelf) -> None:
    fleet = Fleet(shelf, WEIGHED)
    base = fleet.base_tensors["head"].astype(np.float64)
    moved = np.array([(m["head"] - base).ravel() for m in fleet.models[4:]])

    movements = fleet.evidence(2).movements

    np.testing.assert_allclose(movements.output_gram, moved @ moved.T, rtol=1e-6)


def test_an_output_layer_without_a_share_changes_no_bit_and_costs_nothing(shelf: Shelf) -> None:
    plain, weighed = Fleet(shelf).evidence(1), Fleet(shelf, WEIGHED).evidence(1)
    assert plain.movements.output_gram is None
    assert plain.movements.gram.tobytes() == weighed.movements.gram.tobytes()
    assert plain.distances.tobytes() != weighed.distances.tobytes()


def test_sketches_of_the_output_layer_estimate_its_products(shelf: Shelf) -> None:
    features = {"distance": "sketch", "sketch_features": 1024}
    sketched = Fleet(
        shelf, override_config(WEIGHED, [f"cohorting.{k}={v}" for k, v in features.items()])
    )
    exact, found = Fleet(shelf, WEIGHED).evidence(1), sketched.evidence(2)

    assert np.diag(found.movements.output_gram) == pytest.approx(
        np.diag(exact.movements.output_gram)
    )
    assert np.abs(found.distances - exact.distances).max() < 0.2


def test_number_of_shards_changes_no_bit_of_the_output_layer(shelf: Shelf) -> None:
    one, several = (Fleet(shelf, WEIGHED).evidence(count) for count in (1, 3))
    assert one.movements.output_gram.tobytes() == several.movements.output_gram.tobytes()


@pytest.mark.parametrize("n_rows", [3, 300])
def test_products_of_many_rows_lose_less_than_a_millionth(shelf: Shelf, n_rows: int) -> None:
    """Beyond 256 rows they are taken in float32; the weights themselves are ten times larger."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=3000) * 10
    rows = (base + rng.normal(size=(n_rows, 3000))).astype(np.float32)
    refs = [shelf.put({"w": row}) for row in rows]
    reference = shelf.put({"w": base.astype(np.float32)})
    columns = plan_columns([TensorSpec("w", "F32", (3000,))])
    sweep = Sweep(columns, columns.stripes(), shelf.open)

    gram = next(iter(inner_products(sweep, refs, reference))).gram

    moved = rows.astype(np.float64) - base.astype(np.float32)
    exact = moved @ moved.T
    centre = np.eye(n_rows) - 1 / n_rows
    gap = centre @ (gram - exact) @ centre
    assert np.abs(gap).max() <= 1e-6 * np.abs(centre @ exact @ centre).max()


def test_one_client_with_absurd_weights_costs_the_others_nothing(shelf: Shelf) -> None:
    """Squares of its weights have no place in float32, in which so many rows are computed."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(MAX_WIDE_ROWS + 1, 50)).astype(np.float32)
    rows[-1] = 3e38
    reference, *refs = (shelf.put({"w": row}) for row in [np.full(50, -1, np.float32), *rows])
    columns = plan_columns([TensorSpec("w", "F32", (50,))])

    products = inner_products(Sweep(columns, columns.stripes(), shelf.open), refs, reference)

    moved = rows.astype(np.float64) + 1
    np.testing.assert_allclose(next(products).gram, moved @ moved.T, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F64"])
def test_every_dtype_is_read_exactly(shelf: Shelf, dtype: str) -> None:
    values = np.array([[0.0, 0.0, 0.0], [1.5, -2.0, 0.25], [3.0, 0.5, -1.0]])
    specs = [TensorSpec("w", dtype, (3,))]
    digests = [shelf.save(serialize_tensors({"w": row}, specs)) for row in values]
    base, *refs = [ArtifactRef(d, d) for d in digests]
    columns = plan_columns(specs)

    gram = next(iter(inner_products(Sweep(columns, (Span(0, 3),), shelf.open), refs, base))).gram

    assert gram.tolist() == (values[1:] @ values[1:].T).tolist()


def test_candidates_are_rows_behind_the_members(shelf: Shelf) -> None:
    base, moved, cohort = (shelf.put({"w": w}) for w in ([0.0, 0.0], [1.0, 0.0], [0.0, 2.0]))
    unit = CohortingUnit(
        "c0", 2, (UnitMember("a", "c0", moved, 1),), base, (Candidate("c1", cohort),), 0
    )
    columns = columns_of(base, shelf.open, CONFIG)
    [shard] = shards(1)

    sums = sweep_shard(
        SweepPlan((), (), (unit,)), shard, columns, shelf.open, CONFIG, lambda *_: None
    )

    evidence = unit_evidence(unit, [sums.units[0]], columns, CONFIG.cohorting)
    assert evidence.movements.gram.tolist() == [[1.0, 0.0], [0.0, 4.0]]
    assert evidence.distances.shape == (1, 1)


def test_a_witness_is_measured_from_its_own_start(shelf: Shelf) -> None:
    base, moved, birth, sent = (
        shelf.put({"w": w}) for w in ([0.0, 0.0], [1.0, 0.0], [5.0, 7.0], [2.0, 7.0])
    )
    member, candidate = UnitMember("a", "c0", moved, 1), Candidate("c1", birth)
    unit = CohortingUnit(
        "c0", 2, (member,), base, (candidate,), 0, witnesses=(Witness("c1", birth, sent),)
    )
    columns = columns_of(base, shelf.open, CONFIG)
    plan, [shard] = SweepPlan((), (), (unit,)), shards(1)

    sums = sweep_shard(plan, shard, columns, shelf.open, CONFIG, lambda *_: None)

    gram = unit_evidence(unit, [sums.units[0]], columns, CONFIG.cohorting).movements.gram
    assert gram.tolist() == [[1, 5, 3], [5, 74, 15], [3, 15, 9]]
