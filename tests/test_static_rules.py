"""Nothing that is shipped can run code out of data: read off the source, not hoped for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("clma", "tasks", "flows", "deployments")

FORBIDDEN_MODULES = {
    "_pickle",
    "cloudpickle",
    "dill",
    "jsonpickle",
    "marshal",
    "pickle",
    "shelve",
}
FORBIDDEN_CALLS = {
    "builtins.compile",
    "builtins.eval",
    "builtins.exec",
    "importlib.import_module",
    "joblib.load",
    "numpy.load",
    "os.popen",
    "os.system",
    "pandas.read_pickle",
    "runpy.run_module",
    "runpy.run_path",
    "torch.hub.load",
    "torch.jit.load",
    "torch.load",
    "torch.package.PackageImporter",
    "yaml.full_load",
    "yaml.load",
    "yaml.unsafe_load",
}
FORBIDDEN_NAMES = {"__import__", "allow_pickle", "load_model", "read_pickle", "unsafe_load"}
"""Whatever they belong to, as a method, a function or an argument."""

ACCEPTED = {
    ("clma/encoders/torch_weights.py", "torch.load"): (
        "The operator's own checkpoint, read with weights_only=True: tensors or nothing."
    ),
    ("clma/cli/checks.py", "importlib.import_module"): (
        "The comparison with MLflow, under one fixed name of our own; not there on a plant."
    ),
    ("clma/adapters/factory.py", "importlib.import_module"): (
        "The operator names the model factory, as package.module:factory; no client can."
    ),
}
"""(file, what) -> why it is no danger there."""


def findings(source: str) -> Iterator[str]:
    """Yield every forbidden thing that a source uses, under its full name."""
    tree = ast.parse(source)
    imported = dict(_bindings(tree))
    yield from FORBIDDEN_MODULES & {full.partition(".")[0] for full in imported.values()}
    yield from FORBIDDEN_CALLS & set(imported.values())
    names = {name: f"builtins.{name}" for name in ("compile", "eval", "exec")} | imported
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            full = _full_name(node, names)
            yield from {full} & FORBIDDEN_CALLS
            yield from {full.rpartition(".")[2]} & FORBIDDEN_NAMES
        elif isinstance(node, ast.keyword):
            yield from {node.arg or ""} & FORBIDDEN_NAMES


def _bindings(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield every imported name, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                yield alias.asname or root, alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    first = names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"
    return ".".join([first, *reversed(parts)])


def found() -> set[tuple[str, str]]:
    """Return what the shipped code uses, as (file, what)."""
    return {
        (path.relative_to(ROOT).as_posix(), finding)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for finding in findings(path.read_text(encoding="utf-8"))
    }


def test_nothing_shipped_runs_code_out_of_data() -> None:
    assert found() - set(ACCEPTED) == set()


def test_every_accepted_use_is_still_there() -> None:
    assert set(ACCEPTED) <= found()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("def f():\n    import cloudpickle as c", "cloudpickle"),
        ("from marshal import loads", "marshal"),
        ("import torch\ntorch.load(path)", "torch.load"),
        ("import torch as t\nt.load(path, weights_only=True)", "torch.load"),
        ("from torch import load as read\nread(path)", "torch.load"),
        ("import torch.jit\ntorch.jit.load(path)", "torch.jit.load"),
        ("import numpy as np\nnp.load(path)", "numpy.load"),
        ("reader(path, allow_pickle=True)", "allow_pickle"),
        ("import mlflow\nmlflow.pyfunc.load_model(uri)", "load_model"),
        ("from mlflow.pytorch import load_model\nload_model(uri)", "load_model"),
        ("import joblib\nuse(joblib.load)", "joblib.load"),
        ("import yaml\nyaml.load(text)", "yaml.load"),
        ("import pandas\npandas.read_pickle(path)", "pandas.read_pickle"),
        ("eval(text)", "builtins.eval"),
        ("run = exec", "builtins.exec"),
        ("__import__(name)", "__import__"),
        ("from importlib import import_module\nimport_module(x)", "importlib.import_module"),
        ("import os\nos.system(x)", "os.system"),
    ],
)
def test_the_rule_finds_each_of_them_by_any_name(source: str, what: str) -> None:
    assert what in set(findings(source))


@pytest.mark.parametrize(
    "source",
    [
        "module.eval()",
        "import json\njson.load(file)",
        "import re\nre.compile(text)",
        "def load(path): ...\nload(path)",
        "'pickle.loads'",
    ],
)
def test_the_rule_leaves_the_rest_alone(source: str) -> None:
    assert set(findings(source)) == set()
