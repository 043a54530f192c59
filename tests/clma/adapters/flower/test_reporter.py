from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from clma.adapters.flower import CLMA, DriftReporter, cohort_id
from clma.drift import LossThresholdDetector
from clma.errors import InvalidUpdateError
from tests.clma.adapters.flower.crowd import Crowd, a_round, arrays, moved, train, values


def a_context() -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


def message(round_num: int = 1, **content: ArrayRecord) -> Message:
    config = ConfigRecord({"clma-round": round_num, "clma-cohort": 3})
    records = RecordDict({"arrays": arrays(0.0), "config": config, **content})
    return Message(records, dst_node_id=1, message_type="train")


def test_the_memory_survives_in_the_context() -> None:
    context = a_context()
    assert not DriftReporter(context).observe(0.5)

    assert DriftReporter(context).observe(5.0)


def test_the_same_round_twice_is_one_look() -> None:
    context = a_context()
    DriftReporter(context).observe([0.5], message(1))
    first = DriftReporter(context).observe([5.0], message(2))

    assert DriftReporter(context).observe([5.0], message(2)) == first


def test_a_reset_forgets_all_losses() -> None:
    context = a_context()
    DriftReporter(context).observe(0.5)
    DriftReporter(context).reset()

    assert not DriftReporter(context).observe(5.0)


def test_the_reply_carries_the_flag_that_was_seen_before_training() -> None:
    context = a_context()
    DriftReporter(context).observe(0.5, message(1))
    reporter = DriftReporter(context)
    reporter.look(message(2), lambda model: [5.0])

    reply = reporter.build_reply(message(2), arrays(1.0), loss=0.1, num_examples=7)

    assert reply.content["metrics"]["num-examples"] == 7
    assert reply.content["metrics"]["clma-drift"] == 1


def test_a_client_of_fed_clma_reports_as_it_did() -> None:
    context = a_context()
    flags = []
    for number, loss in enumerate((0.5, 0.55, 0.9)):
        reporter = DriftReporter(context, LossThresholdDetector)
        msg = message(number)
        reply = reporter.build_reply(
            msg, arrays=arrays(1.0), loss=loss, num_examples=3, extra_metrics={"f1": 0.5}
        )
        flags.append(reply.content["metrics"]["clma-drift"])

    assert flags == [0, 0, 1]
    assert reply.content["metrics"]["f1"] == 0.5


def test_nothing_but_the_flag_leaves_the_node_by_itself() -> None:
    reply = DriftReporter(a_context()).build_reply(message(4), arrays(1.0), loss=0.7)

    assert set(reply.content["metrics"]) == {"num-examples", "clma-drift", "clma-round"}


def test_without_any_loss_there_is_no_reply() -> None:
    with pytest.raises(InvalidUpdateError, match="call look before training"):
        DriftReporter(a_context()).build_reply(message(), arrays(1.0), num_examples=1)


def test_a_loss_that_is_not_finite_is_no_flag() -> None:
    with pytest.raises(InvalidUpdateError, match="wanted a finite number"):
        DriftReporter(a_context()).observe(float("nan"))


def test_names_of_records_are_those_that_it_is_told() -> None:
    reporter = DriftReporter(a_context(), drift_key="flag", weighted_by_key="n")
    reply = reporter.build_reply(message(), arrays(1.0), loss=1.0, num_examples=2)

    assert (reply.content["metrics"]["n"], reply.content["metrics"]["flag"]) == (2, 0)


def test_the_cohort_is_named_as_the_ledger_names_it() -> None:
    assert cohort_id(message()) == "c3"


def test_the_federation_says_which_detector_is_used() -> None:
    context, node = a_context(), Crowd({})
    settings = ["drift.detector=loss_threshold", "drift.gamma=100.0"]
    strategy = CLMA(settings=settings, min_train_nodes=1, min_available_nodes=1)
    losses = iter([0.5, 5.0])

    def answer(msg: Message) -> Message:
        reporter = DriftReporter(context)
        reporter.look(msg, lambda model: [next(losses)])
        return reporter.build_reply(msg, moved(msg, 1.0), num_examples=1)

    node.answers[1] = answer
    flags = [a_round(strategy, node, n)[1]["clma-num-drifted"] for n in (1, 2)]

    assert flags == [0, 0]


def test_a_false_alarm_goes_home_when_the_origin_is_good_again() -> None:
    """The node flags a night of bad data; the next night its origin's model is good there."""
    context, strategy = a_context(), CLMA()
    crowd = Crowd({n: train(1.0) for n in (1, 2, 3)})
    losses = {1: 0.5, 2: 9.0, 3: 0.5}

    def answer(msg: Message) -> Message:
        reporter = DriftReporter(context)
        reporter.look(msg, lambda model: [losses[msg.content["config"]["clma-round"]]])
        step = arrays(*np.arange(6.0)) if reporter.observe(losses_now(msg), msg) else 1.0
        return reporter.build_reply(msg, moved(msg, step), num_examples=10)

    def losses_now(msg: Message) -> float:
        return losses[msg.content["config"]["clma-round"]]

    crowd.answers[3] = answer
    cohorts = []
    for number in (1, 2, 3):
        a_round(strategy, crowd, number)
        cohorts.append(strategy.cohorts["node-3"])

    assert cohorts == ["c0", "c1", "c0"]
    assert values(strategy.models()["c0"]).shape == (6,)
