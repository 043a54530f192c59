"""A failed round is re-run from Prefect: nothing twice, and the same bytes."""

from __future__ import annotations

import datetime as dt
import shutil
import signal
import subprocess
from collections import Counter

import pytest
from mlflow import MlflowClient

from clma.ledger.federation import Federation
from clma.night import close_round
from clma.records import Phase
from tests.flows.conftest import INSTRUMENTED, Desk
from tests.flows.fleet import results_of

pytestmark = pytest.mark.slow

AFTER_AGGREGATION = Counter(
    [
        "aggregate_cohort-c1",
        "decide_round",
        "commit_round",
        "publish_cohort-c0",
        "publish_cohort-c1",
        "publish_cohort-c2",
        "publish_round",
        "open_round",
    ]
)


def undisturbed(desk: Desk) -> dict[str, str]:
    """Return the results of the same sealed inputs in a copy that nothing happens to."""
    store = desk.folder / "undisturbed"
    shutil.copytree(desk.store, store)
    close_round(Federation.open(store), now=dt.datetime.now(dt.UTC), force=True)
    return results_of(store)


def tracked(desk: Desk) -> Counter[str]:
    """Count MLflow's runs and versions of the federation by what they are."""
    client = MlflowClient(desk.tracking.uri, desk.tracking.uri)
    name = desk.federation.name
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.`clma.round` = '2'")
    counts = Counter("child" if "mlflow.parentRunId" in r.data.tags else "round" for r in runs)
    for model in client.search_registered_models(f"name LIKE '{name}.%'"):
        versions = client.search_model_versions(f"name = '{model.name}'")
        counts[model.name.removeprefix(f"{name}.")] = len(versions)
    return counts


WHOLE = {"round": 1, "child": 3, "c0": 1, "c1": 1, "c2": 1}


def assert_whole(desk: Desk, expected: dict[str, str]) -> None:
    """The round's bytes are the expected ones, and MLflow holds each of its parts once."""
    assert desk.results() == expected
    assert tracked(desk) == WHOLE


def kill_9(night: subprocess.Popen[bytes]) -> None:
    """End a night without a chance to say goodbye."""
    night.send_signal(signal.SIGKILL)
    night.wait()


def test_retry_from_the_command_line_executes_only_what_was_missing(desk: Desk) -> None:
    expected = undisturbed(desk)
    fault = desk.disturb("fail-aggregate_cohort-c1")
    desk.night()
    (run,) = desk.runs()
    assert run["state"]["type"] == "FAILED", desk.output()
    assert desk.executed()["aggregate_cohort-c2"] == 1
    fault.unlink()

    desk.retry(run["id"])

    again = desk.wait_for(run["id"], "COMPLETED")
    assert again["run_count"] == 2
    assert len(desk.runs()) == 1
    assert desk.executed() == AFTER_AGGREGATION
    assert_whole(desk, expected)
    assert Federation.open(desk.store).state().round_num == 3


def test_retry_of_a_finished_night_executes_nothing(desk: Desk) -> None:
    desk.night()
    (run,) = desk.runs()
    assert run["state"]["type"] == "COMPLETED", desk.output()
    assert max(desk.executed().values()) == 1
    before = desk.results()

    desk.retry(run["id"])

    assert desk.wait_for(run["id"], "COMPLETED")["run_count"] == 2
    assert desk.executed() == {}
    assert desk.results() == before
    assert tracked(desk) == WHOLE


def test_retry_in_the_browser_completes_the_served_run(desk: Desk) -> None:
    """The state change is the one that the button of Prefect's page sends."""
    expected = undisturbed(desk)
    desk.python(str(INSTRUMENTED), "serve", wait=False)
    deployment = desk.wait(
        lambda: desk.post(
            "/deployments/filter", {"deployments": {"name": {"any_": ["instrumented"]}}}
        ),
        "the deployment",
    )[0]
    parameters = {
        "store": str(desk.store),
        "federation": desk.federation.name,
        "now": True,
        "tracking_uri": desk.tracking.uri,
    }
    fault = desk.disturb("fail-aggregate_cohort-c1")
    run = desk.post(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
    desk.wait_for(run["id"], "FAILED")
    desk.executed()
    fault.unlink()

    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
    desk.post(f"/flow_runs/{run['id']}/set_state", retry)

    again = desk.wait_for(run["id"], "COMPLETED")
    assert again["run_count"] == 2
    assert len(desk.runs()) == 1
    assert desk.executed() == AFTER_AGGREGATION
    assert_whole(desk, expected)


def test_retry_after_kill_9_goes_on_where_it_was_killed(desk: Desk) -> None:
    """A killed run stays Running in Prefect; it is marked crashed, then retried."""
    expected = undisturbed(desk)
    stall = desk.disturb("stall-aggregate_cohort-c1")
    night = desk.night(wait=False)
    for cohort_id in ("c0", "c2"):
        done = f"aggregate {cohort_id}' - Finished in state Completed"
        desk.wait(lambda line=done: line in desk.output(), f"the model of {cohort_id}")
    desk.wait(lambda: "aggregate_cohort-c1" in desk.log.read_text(), "the stalled aggregation")
    kill_9(night)
    (run,) = desk.runs()
    desk.executed()
    stall.unlink()

    assert run["state"]["type"] == "RUNNING"
    desk.python("-m", "deployments.mark_crashed", run["id"])
    desk.retry(run["id"])

    assert desk.wait_for(run["id"], "COMPLETED")["run_count"] == 2
    assert desk.executed() == AFTER_AGGREGATION
    assert_whole(desk, expected)


def test_new_run_after_kill_9_decides_the_same(desk: Desk) -> None:
    """Whoever does not retry the killed run but starts the night anew gets the same round."""
    expected = undisturbed(desk)
    stall = desk.disturb("stall-commit_round")
    night = desk.night(wait=False)
    desk.wait(lambda: desk.log.exists() and "commit_round" in desk.log.read_text(), "the commit")
    kill_9(night)
    desk.executed()
    stall.unlink()

    desk.night()

    assert [r["state"]["type"] for r in desk.runs()].count("COMPLETED") == 1, desk.output()
    executed = desk.executed()
    assert not any(step.startswith("aggregate_cohort") for step in executed)
    assert_whole(desk, expected)


@pytest.mark.chaos
def test_night_runs_in_a_restored_copy_of_the_store(desk: Desk) -> None:
    """Results that Prefect keeps of one folder are not taken for those of another in its place."""
    backup = desk.folder / "backup"
    Federation.open(desk.store).seal_round(now=dt.datetime.now(dt.UTC), force=True)
    shutil.copytree(desk.store, backup)
    desk.night()
    expected = desk.results()
    shutil.rmtree(desk.store)
    shutil.move(backup, desk.store)

    desk.night()

    assert Federation.open(desk.store).state().round_num == 3, desk.output()
    assert desk.results() == expected


def test_publishing_again_changes_nothing(desk: Desk) -> None:
    desk.night()
    before, models = desk.results(), tracked(desk)
    federation = Federation.open(desk.store)
    assert federation.state().phase is Phase.OPEN

    desk.python("-m", "flows.publish", *options(desk))

    assert desk.results() == before
    assert tracked(desk) == models


def options(desk: Desk) -> list[str]:
    return [
        *("--store", str(desk.store), "--federation", desk.federation.name),
        *("--tracking-uri", desk.tracking.uri),
    ]
