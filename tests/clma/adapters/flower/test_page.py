"""The page for users of Flower says what is so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from clma.adapters.flower import CLMA
from clma.adapters.flower import records as names_on_the_wire
from clma.adapters.flower.options import _SUCCESSORS
from clma.ledger.federation import Federation
from tests.clma.adapters.flower.crowd import Crowd, a_round, arrays, reply, train

PAGE = Path(__file__).parents[4] / "docs" / "flower.md"
TEXT = PAGE.read_text(encoding="utf-8")


def block(name: str) -> str:
    marked = re.search(rf"<!-- {name}:begin -->\n```\w+\n(.*?)```\n<!-- {name}:end -->", TEXT, re.S)
    assert marked is not None, name
    return marked[1]


def defined(name: str, **given: Any) -> dict[str, Any]:
    """Return what a block of the page defines."""
    exec(compile(block(name), "docs/flower.md", "exec"), given)  # noqa: S102 - our own page
    return given


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = defined(
        "flower-client",
        app=ClientApp(),
        ArrayRecord=record,
        Message=Message,
        Context=Context,
        fresh_data=lambda context: [1, 2, 3],
        losses=lambda model, data: [0.5, 0.6, 0.7],
        fit=lambda model, data: {"w": model["w"].numpy() + 1},
    )
    contexts = {n: Context(1, n, {}, RecordDict(), {}) for n in (1, 2)}
    crowd = Crowd({n: lambda m, n=n: node["train"](m, contexts[n]) for n in contexts})
    server = defined(
        "flower-server",
        app=ServerApp(),
        ArrayRecord=record,
        Grid=Grid,
        Context=Context,
        new_model=lambda: {"w": np.zeros(6, np.float32)},
    )
    crowd.answers = {n: train_or_evaluate(crowd.answers[n]) for n in contexts}

    server["main"](crowd, None)

    assert Federation.open("federations/north", "north").committed_rounds() == tuple(range(1, 11))


def record(model: dict[str, np.ndarray]) -> ArrayRecord:
    """Stand for Flower's constructor, which takes torch's tensors by name."""
    return arrays(*model["w"])


def train_or_evaluate(train_answer: Any) -> Any:
    """Return a node that trains as it does, and answers evaluations with an accuracy."""

    def answer(message: Message) -> Message:
        if message.metadata.message_type == "evaluate":
            return train(0.0, accuracy=0.5, clma_drift=None)(message)
        return train_answer(message)

    return answer


def test_every_option_is_on_the_page() -> None:
    table = TEXT.partition("## Options")[2].partition("**With a store**")[0]
    options = re.findall(r"^\| `(\w+)` \|", table, re.M)
    known = [name for name in inspect.signature(CLMA.__init__).parameters if name != "self"]

    assert options == [name for name in known if name != "options"]


def test_every_option_of_fed_clma_is_on_the_page() -> None:
    table = TEXT.partition("## Coming from fed-clma")[2]

    assert [name for name in _SUCCESSORS if f"{name}=" not in table] == []


def test_every_setting_on_the_page_can_be_set() -> None:
    found = re.findall(r"((?:cohorting|drift|round)\.\w+=[\w.]+)", TEXT)
    assert len(found) > 10

    for setting in found:
        CLMA(settings=[setting])


def test_every_name_on_the_wire_is_on_the_page() -> None:
    known = [v for k, v in vars(names_on_the_wire).items() if k.endswith("_KEY")]

    assert [name for name in known if f"`{name}`" not in TEXT and name != "clma-loss"] == []


def test_the_order_of_layers_is_that_of_the_arrays() -> None:
    settings = ["cohorting.selector=last_layers"]
    strategy = CLMA(settings=settings)
    start = ArrayRecord({name: arrays(0.0)["w"] for name in ("z.weight", "a.weight")})
    crowd = Crowd({n: lambda m: reply(m, m.content["arrays"]) for n in (1, 2)})

    a_round(strategy, crowd, start=start)

    assert strategy._rounds.federation.config.cohorting.layer_order == ("z", "a")
