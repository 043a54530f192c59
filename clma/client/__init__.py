"""What a plant runs: pull its model, look for drift, train, submit. Needs no server software.

A night at a plant, with `train` and `losses_of` its own::

    pulled = pull(url, "north", "plant-a", Path("model.safetensors"))
    reading = DriftReporter(config, Path("drift.json")).observe(
        losses_of(pulled.path), round_num=pulled.round_num
    )
    n_examples = train(pulled.path, out=Path("trained.safetensors"))
    submit(
        url,
        "north",
        "plant-a",
        tensors=Path("trained.safetensors"),
        n_examples=n_examples,
        drift_flag=reading.drift_detected,
        pulled=pulled,
    )
"""

from __future__ import annotations

from clma.client.choice import best_model
from clma.client.monitor import InferenceDriftMonitor, MonitorReading
from clma.client.pull import ModelOfChoice, PulledModel, pull
from clma.client.reporter import DriftReporter
from clma.client.submit import SubmitReceipt, submit

__all__ = [
    "DriftReporter",
    "InferenceDriftMonitor",
    "ModelOfChoice",
    "MonitorReading",
    "PulledModel",
    "SubmitReceipt",
    "best_model",
    "pull",
    "submit",
]
