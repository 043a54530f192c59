from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from clma.adapters.flower import CLMA, cohort_id
from clma.errors import InvalidConfigError
from tests.clma.adapters.flower.crowd import (
    Crowd,
    a_round,
    arrays,
    moved,
    reply,
    train,
    values,
)

LEFT, RIGHT = arrays(5, 5, 5, 0, 0, 0), arrays(0, 0, 0, 5, 5, 5)


def drifted_fleet(strategy: CLMA) -> Crowd:
    """Four nodes, of which two have just drifted alike."""
    crowd = Crowd({n: train(1.0) for n in (1, 2, 3, 4)})
    a_round(strategy, crowd, 1)
    crowd.answers |= {n: train(LEFT, clma_drift=1) for n in (3, 4)}
    a_round(strategy, crowd, 2)
    return crowd


def test_nodes_that_do_not_drift_get_the_weighted_mean() -> None:
    strategy = CLMA()
    crowd = Crowd({1: train(1.0, num_examples=30), 2: train(2.0, num_examples=10)})

    model, _ = a_round(strategy, crowd)

    np.testing.assert_allclose(values(model), 1.25)


def test_drifted_nodes_leave_the_mean_and_share_a_model() -> None:
    strategy = CLMA()

    crowd = drifted_fleet(strategy)
    strategy.configure_train(3, arrays(0.0), ConfigRecord(), crowd)
    a_round(strategy, crowd, 3)

    np.testing.assert_allclose(crowd.model_of(1), 2.0)
    np.testing.assert_allclose(crowd.model_of(3), 1.0 + values(LEFT))
    np.testing.assert_array_equal(crowd.model_of(3), crowd.model_of(4))


def test_opposite_drifts_become_two_cohorts() -> None:
    strategy = CLMA()
    crowd = Crowd({n: train(1.0) for n in range(6)})
    a_round(strategy, crowd, 1)
    crowd.answers |= {n: train(LEFT, clma_drift=1) for n in (2, 3)}
    crowd.answers |= {n: train(RIGHT, clma_drift=1) for n in (4, 5)}

    a_round(strategy, crowd, 2)

    cohort = strategy.cohorts
    assert cohort["node-2"] == cohort["node-3"] != cohort["node-4"] == cohort["node-5"]


def test_messages_name_the_cohort() -> None:
    crowd = drifted_fleet(strategy := CLMA())

    messages = strategy.configure_train(3, arrays(0.0), ConfigRecord(), crowd)

    named = {m.metadata.dst_node_id: cohort_id(m) for m in messages}
    assert named == {1: "c0", 2: "c0", 3: "c1", 4: "c1"}


def test_evaluation_uses_the_model_of_the_own_cohort() -> None:
    crowd = drifted_fleet(strategy := CLMA())

    crowd.sent = list(strategy.configure_evaluate(2, arrays(0.0), ConfigRecord(), crowd))

    np.testing.assert_allclose(crowd.model_of(1), 2.0)
    np.testing.assert_allclose(crowd.model_of(4), 1.0 + values(LEFT))


def test_evaluation_is_averaged_over_fleet_and_cohorts() -> None:
    crowd = drifted_fleet(strategy := CLMA())
    messages = strategy.configure_evaluate(2, arrays(0.0), ConfigRecord(), crowd)

    metrics = strategy.aggregate_evaluate(
        2,
        [
            reply(m, arrays(0.0), accuracy=0.5 if cohort_id(m) == "c0" else 0.9, clma_drift=None)
            for m in messages
        ],
    )

    assert dict(metrics) == pytest.approx({"accuracy": 0.7, "c0/accuracy": 0.5, "c1/accuracy": 0.9})


def test_counts_have_the_names_of_fed_clma() -> None:
    strategy = CLMA()
    crowd = Crowd({n: train(1.0) for n in (1, 2, 3, 4)})
    a_round(strategy, crowd, 1)
    crowd.answers |= {n: train(LEFT, clma_drift=1) for n in (3, 4)}

    _, metrics = a_round(strategy, crowd, 2)

    assert metrics["clma-num-drifted"] == 2
    assert metrics["clma-num-new-cohorts"] == 1
    assert metrics["clma-num-cohorts"] == 2
    assert metrics["clma-num-merged-cohorts"] == 0


def test_a_missing_flag_is_no_drift(caplog: pytest.LogCaptureFixture) -> None:
    strategy = CLMA()
    crowd = Crowd({1: train(1.0), 2: train(3.0, clma_drift=None)})

    with caplog.at_level(logging.WARNING, logger="flwr"):
        model, _ = a_round(strategy, crowd)

    np.testing.assert_allclose(values(model), 2.0)
    assert "node-2 sent no 'clma-drift'" in caplog.text


def test_the_flag_may_have_another_name() -> None:
    strategy = CLMA(drift_key="my-flag")
    crowd = Crowd({n: train(1.0, clma_drift=None, my_flag=0) for n in (1, 2, 3)})
    a_round(strategy, crowd, 1)
    crowd.answers[3] = train(LEFT, clma_drift=None, my_flag=1)

    a_round(strategy, crowd, 2)

    assert strategy.cohorts == {"node-1": "c0", "node-2": "c0", "node-3": "c1"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda m: reply(m, arrays(np.nan)), "NaN"),
        (lambda m: reply(m, arrays(np.inf), clma_drift=1), "infinite"),
        (lambda m: reply(m, arrays(1, 2, 3)), "expected [6] got [3]"),
        (lambda m: reply(m, ArrayRecord({"v": arrays(1.0)["w"]})), "missing tensors: w"),
        (lambda m: reply(m, arrays(1.0, dtype=np.int32)), "is I32, wanted F32"),
        (lambda m: reply(m, arrays(1.0), num_examples=-1), "'num-examples' is -1"),
        (lambda m: reply(m, arrays(1.0), num_examples=0.5), "'num-examples' is 0.5"),
        (lambda m: reply(m, arrays(1.0), num_examples=[1, 2]), "'num-examples' is [1, 2]"),
        (lambda m: reply(m, arrays(1.0), num_examples=None), "'num-examples' is None"),
        (lambda m: reply(m, arrays(1.0), clma_drift=float("nan")), "wanted 0 or 1"),
        (lambda m: reply(m, arrays(1.0), clma_drift=[1]), "wanted 0 or 1"),
        (lambda m: reply(m, arrays(1.0), clma_round=7), "trained for round 7, round 1 is open"),
        (lambda m: reply(m, arrays(1.0), clma_round=0.5), "'clma-round' is 0.5"),
        (lambda m: Message(RecordDict(), reply_to=m), "0 metric records"),
        (lambda m: without_arrays(m), "0 array records"),
    ],
)
def test_a_bad_reply_costs_its_own_vote_only(
    answer: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = CLMA()
    crowd = Crowd({1: train(1.0), 2: train(3.0), 3: answer})

    with caplog.at_level(logging.WARNING, logger="flwr"):
        model, metrics = a_round(strategy, crowd)

    np.testing.assert_allclose(values(model), 2.0)
    assert metrics["clma-num-accepted"] == 2
    assert metrics["clma-num-refused"] == 1
    assert "node-3 refused" in caplog.text
    assert reason in caplog.text


def without_arrays(message: Message) -> Message:
    metrics = MetricRecord({"num-examples": 1, "clma-drift": 0})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def test_a_reply_of_an_earlier_round_does_not_count() -> None:
    strategy = CLMA()
    crowd = Crowd({n: train(1.0) for n in (1, 2)})
    a_round(strategy, crowd, 1)
    crowd.answers[2] = train(99.0, clma_round=1)

    model, metrics = a_round(strategy, crowd, 2)

    np.testing.assert_allclose(values(model), 2.0)
    assert metrics["clma-num-refused"] == 1


def test_hostile_evaluations_are_left_out() -> None:
    strategy = CLMA()
    crowd = Crowd({n: train(1.0) for n in (1, 2, 3)})
    a_round(strategy, crowd)
    messages = list(strategy.configure_evaluate(1, arrays(0.0), ConfigRecord(), crowd))
    bad = [
        reply(messages[0], arrays(0.0), accuracy=1e300, num_examples=-5),
        Message(RecordDict(), reply_to=messages[1]),
    ]
    good = reply(messages[2], arrays(0.0), accuracy=0.5, clma_drift=None)

    metrics = strategy.aggregate_evaluate(1, [*bad, good])

    assert dict(metrics) == {"accuracy": 0.5, "c0/accuracy": 0.5}


def test_a_second_reply_of_a_node_does_not_count_twice() -> None:
    strategy = CLMA()
    twice = [train(1.0), train(1.0), train(9.0)]
    crowd = Crowd({1: lambda m: [answer(m) for answer in twice], 2: train(3.0)})

    model, metrics = a_round(strategy, crowd)

    np.testing.assert_allclose(values(model), 2.0)
    assert metrics["clma-num-accepted"] == 2


def test_a_reply_of_a_node_that_was_not_asked_is_left_out() -> None:
    strategy = CLMA()
    crowd = Crowd({1: train(1.0), 2: train(3.0)})
    messages = list(strategy.configure_train(1, arrays(0.0), ConfigRecord(), crowd))
    stranger = Message(messages[0].content, dst_node_id=7, message_type="train")

    model, _ = strategy.aggregate_train(
        1, [*crowd.send_and_receive(messages), reply(stranger, arrays(99.0))]
    )

    np.testing.assert_allclose(values(model), 2.0)


def test_a_node_that_fails_keeps_its_cohort() -> None:
    crowd = drifted_fleet(strategy := CLMA())
    crowd.answers[4] = lambda m: Message(Error(code=0, reason="out of memory"), reply_to=m)

    a_round(strategy, crowd, 3)

    assert strategy.cohorts["node-4"] == "c1"


def test_a_round_without_replies_changes_nothing() -> None:
    strategy = CLMA()
    crowd = Crowd({n: train(1.0) for n in (1, 2)})
    a_round(strategy, crowd, 1)
    crowd.answers = dict.fromkeys((1, 2), lambda m: [])

    model, metrics = a_round(strategy, crowd, 2)
    crowd.sent = list(strategy.configure_train(3, arrays(0.0), ConfigRecord(), crowd))

    assert model is None
    assert metrics["clma-num-accepted"] == 0
    np.testing.assert_allclose(crowd.model_of(1), 1.0)


def test_the_order_of_replies_changes_no_bit() -> None:
    models = []
    for ids in ([1, 2, 3], [3, 1, 2]):
        crowd = Crowd({n: train(1 / (n + 2), num_examples=n) for n in ids})
        models.append(values(a_round(CLMA(), crowd)[0]))

    np.testing.assert_array_equal(*models)


def test_keys_keep_the_order_of_the_initial_arrays() -> None:
    start = ArrayRecord({name: arrays(0.0)["w"] for name in ("z", "a", "m")})
    crowd = Crowd({n: lambda m: reply(m, m.content["arrays"]) for n in (1, 2)})

    model, _ = a_round(CLMA(), crowd, start=start)

    assert list(model) == ["z", "a", "m"]
    assert list(crowd.sent[0].content["arrays"]) == ["z", "a", "m"]


def test_wider_floats_are_rounded_to_the_type_of_the_model() -> None:
    wide = lambda m: reply(m, arrays(*moved_values(m), dtype=np.float64))  # noqa: E731
    model, metrics = a_round(CLMA(), Crowd({1: wide, 2: wide}))

    assert values(model).dtype == np.float32
    assert metrics["clma-num-accepted"] == 2


def moved_values(message: Message) -> np.ndarray:
    return values(moved(message, 1.0))


def test_a_second_start_begins_with_its_own_arrays() -> None:
    strategy = CLMA()
    crowd = Crowd({n: train(1.0) for n in (1, 2)})
    strategy.start(crowd, arrays(7.0), num_rounds=1)

    result = strategy.start(crowd, arrays(42.0), num_rounds=1)

    np.testing.assert_allclose(values(result.arrays), 43.0)


def test_own_functions_for_metrics_see_used_replies_only() -> None:
    seen = []
    strategy = CLMA(train_metrics_aggr_fn=lambda contents, key: _note(seen, contents))

    a_round(strategy, Crowd({1: train(1.0), 2: lambda m: reply(m, arrays(np.nan))}))

    assert seen == [1]


def _note(seen: list[int], contents: list[object]) -> MetricRecord:
    seen.append(len(contents))
    return MetricRecord({})


def test_a_fraction_of_the_nodes_is_asked_and_known() -> None:
    strategy = CLMA(fraction_train=0.5, min_train_nodes=1)
    crowd = Crowd({n: train(1.0) for n in range(10)})

    a_round(strategy, crowd)

    assert len(crowd.sent) == 5
    assert len(strategy.cohorts) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cohorter": object()}, "cohorter is an option of fed-clma; name a method instead"),
        ({"param_selector": object()}, r"settings=\['cohorting.selector"),
        ({"merge_cohorts_threshold": 0.05}, "merge by themselves"),
        ({"fraction_fit": 0.5}, "option 'fraction_fit' is unknown, Flower's are"),
        ({"preset": "ifca"}, "needs choice"),
        ({"preset": "no-such"}, "preset 'no-such' is unknown"),
        ({"settings": ["identity.updates=signed"]}, "nodes of Flower sign none"),
    ],
)
def test_an_option_that_cannot_be_met_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        CLMA(**options)


def test_options_of_fed_clma_that_ask_nothing_are_accepted() -> None:
    CLMA(cohorter=None, param_selector=None, merge_cohorts_threshold=None, min_train_nodes=1)
